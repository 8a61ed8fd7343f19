"""`mmcache lab`: run a table again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mmcache import plugins
from mmcache.cli import checkout
from mmcache.cli.advise import SkipBad
from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, bar, complain, grid, show
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from mmcache.lab.table import Table

app = App(name="lab", help="Run the tables that prove what mmcache does.")

Quick = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Smaller input, within a minute; writes no results unless --out."),
]
Strict = Annotated[bool, Parameter(negative="", show_default=False, help="Exit with 1 when a target is missed.")]
Seeds = Annotated[tuple[int, ...], Parameter(help="Seeds of the random input; default: the table's own.")]
Out = Annotated[
    Path | None, Parameter(help="Folder for NAME.json, .md and .svg. Default: the checkout's docs/results.")
]

Trace = Annotated[Path | None, Parameter(help="Your own access log, for the table `policies`.")]


def _tables(names: tuple[str, ...]) -> Iterator[Table]:
    for name in names:
        yield plugins.load("lab", name)()


def _on_log(names: tuple[str, ...], trace: Path, skip_bad: bool) -> Iterator[Table]:
    if names != ("policies",):
        raise SettingsError("--trace is for one table: mmcache lab run policies --trace FILE")
    from mmcache.lab.log_table import LogTable

    yield LogTable(trace, skip_bad=skip_bad)


def results_folder(quick: bool, out: Path | None) -> Path | None:
    """Where results go; None = nowhere."""
    source = None if quick else checkout.find()
    return out or (source and source / "docs" / "results")


@app.command(name="list")
def list_tables(*, speak: Speak = DEFAULT_SPEAK) -> int:
    """Name the tables and the question that each answers.

    Example: mmcache lab list
    """
    rows = []
    for name in plugins.names("lab"):
        try:
            title = plugins.load("lab", name).title
        except ImportError as error:
            title = f"cannot run here: {error}; pip install 'mmcache[lab,demo]'"
        rows.append((name, title))
    show(
        speak,
        [{"name": name, "title": title} for name, title in rows],
        lambda: grid("Tables", ("name", "question"), rows),
    )
    return Exit.DONE


@app.command(name="run")
def run_tables(
    *names: str,
    quick: Quick = False,
    seeds: Seeds = (),
    out: Out = None,
    strict: Strict = False,
    trace: Trace = None,
    skip_bad: SkipBad = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Run tables by name; prints our figures beside the published ones, and what was real.

    With --json, one line of JSON a table. With --trace, the table `policies` runs on your own access log: CSV or JSON
    lines with key, time, bytes, cost, tenant, modality (see `mmcache advise`); results go to --out only.

    Example: mmcache lab run codec --quick
    """
    from mmcache.lab.bench import run
    from mmcache.lab.report import screen, write

    folder, met = (results_folder(quick, out) if trace is None else out), True
    for table in _on_log(names, trace, skip_bad) if trace else _tables(names or tuple(plugins.names("lab"))):
        with bar(speak) as progress:
            result = run(table, quick, seeds, progress)
        show(speak, result.as_json(), lambda table=table, result=result: screen(table, result))  # type: ignore[misc]
        if folder is not None:
            paths = write(table, result, folder)
            complain(f"wrote {', '.join(path.name for path in paths)} into {folder}")
        met = met and result.met
    return Exit.NO if strict and not met else Exit.DONE
