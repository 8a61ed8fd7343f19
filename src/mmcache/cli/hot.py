"""`mmcache hot`: which keys are hot now, in the processes that use a cache folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from mmcache.cli.ending import ended_by_signal
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, show, size
from mmcache.model.errors import TierError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.hotkeys.view import HotKey, HotView

_EVERY = 1.0
"""Seconds between two looks."""
_NAME = 16
_COLUMNS = (
    ("key", False, 16, 0), ("kind", False, 4, 100), ("tenant", False, 10, 0), ("score", True, 5, 0),
    ("heat", True, 4, 0), ("parts", False, 8, 120), ("life", True, 11, 0), ("tier", False, 6, 0),
    ("bytes", True, 5, 100), ("group", False, 2, 0), ("in", False, 2, 0),
)  # fmt: skip
"""Name, figures or not, least width, and how wide the terminal must be."""


def hot(
    *,
    top: Annotated[int, Parameter(help="How many keys.", validator=validators.Number(gte=1, lte=200))] = 20,
    once: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print it once and end. Also where stdout is no terminal."),
    ] = False,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """List the hottest keys with score, parts, expected life, tier and community, live; ^C ends it.

    Processes that have a `HotKeys` say what is hot in them; those that use the same folder are shown together.

    Example: mmcache hot --root ~/.cache/mmcache --top 10
    """
    found = look(folder.path, top)
    if not found.processes:
        said = f" ({'; '.join(found.damaged)})" if found.damaged else ""
        raise TierError(
            f"no process says what is hot in {folder.path}{said}: start mmcache.hotkeys.HotKeys(cache) in one that "
            "uses this folder, or give its folder with --root"
        )
    if once or folder.json or not sys.stdout.isatty():
        from rich.console import Console

        show(folder, asdict(found), lambda: drawn(found, Console().width))
        return Exit.DONE
    _live(folder.path, top, found)
    return Exit.DONE


@dataclass(frozen=True)
class Process:
    """Who says it."""

    number: int
    instance: str
    service: str
    age: float
    """Seconds since it looked."""
    tracked_keys: int
    tracked_edges: int
    seconds: float


@dataclass(frozen=True)
class Line:
    """A key, as all processes together see it."""

    key: str
    score: float
    """The highest."""
    parts: dict[str, float]
    heat: float
    """Of all."""
    modality: str
    tenant: str
    tier: str
    bytes: int
    expected_hours: float | None
    confidence: float | None
    communities: list[str]
    """`process:id`."""
    processes: list[int]


@dataclass(frozen=True)
class Found:
    """What is shown."""

    processes: list[Process]
    keys: list[Line]
    communities: list[dict[str, Any]]
    damaged: list[str]


def look(root: Path, top: int, now: float | None = None) -> Found:
    """Read what the processes say. now: Unix seconds."""
    from msgspec import to_builtins

    from mmcache.hotkeys.outlets import published

    now = time.time() if now is None else now
    views, damaged = published(root, now)
    processes = [
        Process(number, view.instance, view.service, max(0.0, now - view.at), view.tracked_keys, view.tracked_edges,
                view.seconds)
        for number, view in enumerate(views, 1)
    ]  # fmt: skip
    communities = [
        {"process": number} | to_builtins(one) for number, view in enumerate(views, 1) for one in view.communities
    ]
    return Found(processes, _merged(views)[:top], communities, damaged)


def _merged(views: Sequence[HotView]) -> list[Line]:
    lines: dict[tuple[str, str], Line] = {}
    for number, view in enumerate(views, 1):
        for one in view.keys:
            name, at = (one.key, one.tenant), [f"{number}:{one.community}"] if one.community else []
            old = lines.get(name)
            hotter = old is None or one.score > old.score
            if old is None:
                old = Line("", 0.0, {}, 0.0, "", "", "", 0, None, None, [], [])
            told: HotKey | Line = one if hotter else old
            lines[name] = Line(
                one.key, told.score, dict(told.parts), old.heat + one.heat, told.modality, one.tenant,
                told.tier or old.tier or one.tier, told.bytes or old.bytes or one.bytes,
                told.expected_hours, told.confidence, [*old.communities, *at], [*old.processes, number],
            )  # fmt: skip
    return sorted(lines.values(), key=lambda line: (-line.score, -line.heat, line.key, line.tenant))


def drawn(found: Found, width: int) -> RenderableType:
    """A table for people; names that came from outside cannot move the cursor."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from mmcache.dashboard.telling import ago, count, named

    head = [Text("hot keys", style="bold")]
    head += [
        Text(
            f"{one.number}  {named(one.instance)} ({named(one.service, 32)}), {ago(one.age)} ago: "
            f"{count(one.tracked_keys)} keys, {count(one.tracked_edges)} edges, looked for {ago(one.seconds)}",
            style="dim",
        )
        for one in found.processes
    ] or [Text("no process says what is hot any more", style="bold yellow")]
    head += [Text(f"! {named(one, 200)}", style="bold red") for one in found.damaged]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    several = len(found.processes) > 1
    for name, right, least, from_width in _COLUMNS:
        if width >= from_width and (name != "in" or several):
            justify: Literal["left", "right"] = "right" if right else "left"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least)
    for one in found.keys:
        groups = one.communities if several else [name.partition(":")[2] for name in one.communities]
        cells = {
            "key": named(one.key, _NAME),
            "kind": named(one.modality, 8),
            "tenant": _cut(named(one.tenant, _NAME)),
            "score": f"{one.score:.2f}",
            "heat": f"{one.heat:.1f}",
            "parts": ", ".join(f"{named(name, 24)} {value:.3g}" for name, value in one.parts.items()),
            "life": _life(one),
            "tier": named(one.tier, 8),
            "bytes": size(one.bytes) if one.bytes else "",
            "group": " ".join(groups),
            "in": " ".join(map(str, one.processes)),
        }
        table.add_row(*(Text(cells[str(column.header)]) for column in table.columns))
    return Group(*head, table)


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _life(one: Line) -> str:
    if one.expected_hours is None:
        return ""
    sure = "" if one.confidence is None else f" {100 * one.confidence:.0f} %"
    return f"{one.expected_hours:.1f} h{sure}"


def _live(root: Path, top: int, found: Found) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        ended_by_signal() as pause,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as screen,
    ):
        screen.update(drawn(found, console.width), refresh=True)
        while pause(_EVERY):
            screen.update(drawn(look(root, top), console.width), refresh=True)
