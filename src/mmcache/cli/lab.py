"""`mmcache lab`, `mmcache bench`: run a table or a benchmark again."""

from __future__ import annotations

import subprocess
import sys
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


def _results(quick: bool, out: Path | None) -> Path | None:
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

    folder, met = (_results(quick, out) if trace is None else out), True
    for table in _on_log(names, trace, skip_bad) if trace else _tables(names or tuple(plugins.names("lab"))):
        with bar(speak) as progress:
            result = run(table, quick, seeds, progress)
        show(speak, result.as_json(), lambda table=table, result=result: screen(table, result))  # type: ignore[misc]
        if folder is not None:
            paths = write(table, result, folder)
            complain(f"wrote {', '.join(path.name for path in paths)} into {folder}")
        met = met and result.met
    return Exit.NO if strict and not met else Exit.DONE


def bench(
    *names: str,
    quick: Quick = False,
    out: Out = None,
    strict: Strict = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Run benchmarks of the source checkout beside their peers: `all`, or some by name; without a name, list them.

    Each runs in a process of its own. With --json, one line of JSON a benchmark.

    Example: mmcache bench hit_path --quick
    """
    source = checkout.find()
    if source is None:
        raise SettingsError("benchmarks are in the source checkout, not in the package; clone it and run this there")
    scripts = {path.stem: path for path in sorted((source / "benchmarks").glob("[!_]*.py"))}
    if not names:
        show(speak, list(scripts), lambda: grid("Benchmarks", ("name",), [(name,) for name in scripts]))
        return Exit.DONE
    if unknown := [name for name in names if name != "all" and name not in scripts]:
        raise SettingsError(f"no benchmark named {', '.join(unknown)}; known: all, {', '.join(scripts)}")
    folder, met = _results(quick, out), True
    options = ["--quick"] * quick + ["--json"] * speak.json + (["--out", str(folder)] if folder else [])
    for name in scripts if "all" in names else names:
        met = _script(scripts[name], *options) and met
    return Exit.NO if strict and not met else Exit.DONE


def _script(script: Path, *options: str) -> bool:
    """Run one, its output going where ours goes; whether it met its targets."""
    done = subprocess.run([sys.executable, str(script), "--strict", *options], check=False)
    if done.returncode not in (Exit.DONE, Exit.NO):
        raise SettingsError(f"the benchmark {script.stem} could not run (exit code {done.returncode}); see above")
    return done.returncode == Exit.DONE
