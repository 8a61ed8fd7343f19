"""How commands speak: a table for people or JSON for programs on stdout; bars and complaints on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mmcache.settings import default_root

if TYPE_CHECKING:
    from rich.console import RenderableType

Progress = Callable[[str, int, int], None]


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    NO = 1
    """The command worked, and its answer is no: damage was found, there is no such key, a target was missed."""
    USAGE = 2
    """The command line makes no sense."""
    FAILED = 3
    """The command could not do its work; stderr says why and what to do."""
    INTERRUPTED = 130


@Parameter(name="*")
@dataclass(frozen=True)
class Speak:
    """Options of every command."""

    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print JSON for programs; no colours, no progress bar.")
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class Folder(Speak):
    """Options of the commands that look into a cache folder."""

    root: Annotated[
        Path | None,
        Parameter(help="The cache folder. Default: $MMCACHE_ROOT, else ~/.cache/mmcache."),
    ] = None

    @property
    def path(self) -> Path:
        """The folder meant."""
        return (self.root or default_root()).expanduser()


DEFAULT_SPEAK = Speak()
DEFAULT_FOLDER = Folder()


def _finite(data: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def show(speak: Speak, data: object, view: Callable[[], RenderableType]) -> None:
    """Print `data` as one line of JSON, or `view()` for people."""
    if speak.json:
        print(json.dumps(_finite(data), default=str))
        return
    from rich.console import Console

    if isinstance(sys.stdout, TextIOWrapper):  # a terminal of another encoding than UTF-8 gets "?" for what it lacks
        sys.stdout.reconfigure(errors="replace")
    Console().print(view())


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"mmcache: {message}", file=sys.stderr)


def grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> RenderableType:
    """A titled table for people, figures right-aligned; without rows only the title, without column names no head."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    lines = [[str(cell) for cell in row] for row in rows]
    head = Text(title, style="bold")
    if not lines:
        return head
    table = Table(show_header=any(columns))
    for place, column in enumerate(columns):
        figures = place > 0 and any(columns) and all(line[place][:1].isdigit() for line in lines)
        table.add_column(column, justify="right" if figures else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return Group(head, table)


def facts(title: str, pairs: Mapping[str, object]) -> RenderableType:
    """Names and values, one pair a line."""
    return grid(title, ("", ""), list(pairs.items()))


def size(count: int) -> str:
    """Bytes for people: `3.2 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


@contextmanager
def bar(speak: Speak) -> Iterator[Progress]:
    """A `Progress` that draws bars on stderr; silent with `--json` or where nobody watches."""
    if speak.json or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def step(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield step
