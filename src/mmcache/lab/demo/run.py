"""The demo from end to end."""

from __future__ import annotations

import json as codec
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mmcache.lab.demo.outcome import Outcome
from mmcache.lab.demo.passes import run_all
from mmcache.lab.demo.stream import lay
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import SettingsError


def run(
    root: Path | None = None,
    quick: bool = False,
    report: Path = Path("demo-report"),
    json: bool = False,
    *,
    results: Path | None = None,
    seed: int = 0,
) -> int:
    """Run all passes, print what they show, and write `report/index.html` and `report/demo.json`.

    root: an empty or new folder that keeps files and caches; None = a temporary one.
    quick: a fifth of the stream.
    json: print JSON instead of tables, and no progress bar.
    results: also write `demo.json` and `demo.svg` there (`docs/results` in a checkout).
    Returns 0; 1 when outputs differ or a bound is broken. Raises `AssetError`, `SettingsError`, `MMCacheError`.
    """
    if root is not None and root.exists() and any(root.iterdir()):
        raise SettingsError(f"{root} is not empty; the demo starts from an empty cache: name a new folder")
    place = tempfile.TemporaryDirectory(prefix="mmcache-demo-") if root is None else nullcontext(str(root))
    with place as folder, nullcontext(silent) if json else bar() as progress:
        manifest = lay(Path(folder) / "media", seed=seed, quick=quick, progress=progress)
        outcome = Outcome(manifest, run_all(Path(folder), manifest, progress))

    from mmcache.lab.demo.report import figure, write

    page = write(outcome, report)
    text = codec.dumps(outcome.as_json(), indent=2, ensure_ascii=False) + "\n"
    for target in (report, results):
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
            (target / "demo.json").write_text(text, encoding="utf-8")
    if results is not None:
        (results / "demo.svg").write_text(figure(outcome), encoding="utf-8")
    if json:
        print(text, end="")
    else:
        from rich.console import Console

        from mmcache.lab.demo.screen import screen

        console = Console()
        console.print(screen(outcome))
        console.print(f"Report: {page}")
    return 0 if outcome.ok else 1


@contextmanager
def bar() -> Iterator[Progress]:
    """A bar for each step on stderr; where nobody watches, a line when a step ends."""
    if not sys.stderr.isatty():
        yield _line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<17}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks = dict[str, object]()

        def show(what: str, done: int, total: int) -> None:
            title = "lay files" if what.startswith("lay") else what
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total)
            bars.update(tasks[title], completed=done, total=total)  # type: ignore[arg-type]

        yield show


def _line(what: str, done: int, total: int) -> None:
    if done >= total:
        print(f"{what}: {total} done", file=sys.stderr, flush=True)
