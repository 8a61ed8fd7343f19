"""`mmcache advise`: which policy, how much memory and which lifetime would serve your own traffic best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mmcache.cli.choose import parse_age
from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, bar, complain, grid, show
from mmcache.model.errors import SettingsError
from mmcache.settings import parse_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.lab.advice import Study

SkipBad = Annotated[
    bool, Parameter(negative="", show_default=False, help="Leave out rows of the log that cannot be used.")
]


def advise(
    log: Path,
    /,
    *,
    policy: Annotated[tuple[str, ...], Parameter(help="Compare only these policies. Default: all registered.")] = (),
    memory: Annotated[str | None, Parameter(help="As much memory as there is: 2GiB. Default: advised too.")] = None,
    fresh_within: Annotated[
        str | None, Parameter(help="No answer may be older: 90s, 30m, 12h, 7d. Default: what costs no hits.")
    ] = None,
    output: Annotated[Path | None, Parameter(help="Also write the page, .html or .md.")] = None,
    write: Annotated[Path | None, Parameter(help="Also write the configuration file, e.g. mmcache.toml.")] = None,
    exact: Annotated[
        bool, Parameter(negative="", show_default=False, help="Replay all of a long log, not a sample of its blocks.")
    ] = False,
    skip_bad: SkipBad = False,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Replay an access log and say which policy, memory and lifetime would serve it best, and what they save.

    LOG is CSV with a header or JSON lines, plain or .gz, .xz, .bz2. Columns: key (needed), time, bytes, cost (seconds;
    cost_ms too), tenant, modality; common other names are understood, and what is missing is assumed and said. Exit
    code 1 when no policy saves anything.

    Example: mmcache advise access.csv --write mmcache.toml --output advice.html
    """
    if output is not None and output.suffix.lower() not in (".html", ".md"):
        raise SettingsError(f"--output is a page ending in .html or .md, not {output}")
    limit = parse_bytes(memory) if memory is not None else None
    if limit == 0:
        raise SettingsError("--memory must be more than nothing; leave it out to have it advised")
    oldest = parse_age(fresh_within) if fresh_within is not None else None
    if oldest is not None and oldest <= 0:
        raise SettingsError("--fresh-within must be more than nothing: no answer of a cache is younger")
    from mmcache.lab.advice import study
    from mmcache.lab.advice.words import as_json, config
    from mmcache.lab.traces.log import read_log

    with bar(speak) as progress:
        trace = read_log(log, skip_bad=skip_bad, progress=progress)
        found = study(trace, policies=policy, memory=limit, fresh_within=oldest, exact=exact, progress=progress)
    if output is not None:  # before anything is shown: where a file cannot be written, only the error is JSON
        output.write_text(_page(found, log, output), encoding="utf-8")
        complain(f"wrote {output}")
    if write is not None:
        write.write_text(config(found), encoding="utf-8")
        complain(f"wrote {write}; use it with Cache.from_config({str(write)!r})")
    show(speak, as_json(found), lambda: _view(found))
    return Exit.DONE if found.best.saved > 0 else Exit.NO


def _view(found: Study) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from mmcache.lab.advice.words import config, grids, headline, sentences

    tables = [grid(table.title, table.columns, table.rows) for table in grids(found)]
    lines = [Text(line, style="dim") for line in sentences(found)]
    return Group(
        Text(f"Advised: {headline(found)}.", style="bold"), *lines, *tables, Text("mmcache.toml", style="bold"),
        Text(config(found)),
    )  # fmt: skip


def _page(found: Study, log: Path, output: Path) -> str:
    from mmcache.lab.advice.page import html, markdown

    if output.suffix.lower() == ".md":
        return markdown(found)
    try:
        from mmcache.lab.log_table import LogTable
        from mmcache.lab.plot import svg

        table = LogTable(log, found=found)
        drawn = svg(table, table.run(False, (0,), lambda what, done, total: None))
    except ImportError as error:
        raise SettingsError(
            f"the curves need {error.name}: pip install 'mmcache[lab]', or write an .md page"
        ) from error
    return html(found, drawn[drawn.index("<svg") :])
