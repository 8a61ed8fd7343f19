"""Results as files (`NAME.json`, `NAME.md`, `NAME.svg`) and as a table on the screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mmcache.lab.plot import svg
from mmcache.lab.table import Result, Row, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("id", "metric", "unit", "ours", "p10–p90", "target", "published", "met")
SCREEN = ("id", "ours", "p10–p90", "target", "published", "met")
"""Narrow enough for 80 columns; the metric in words is in the files."""


def number(value: float | None) -> str:
    """A figure with four significant digits; `–` for none."""
    if value is None:
        return "–"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def cells(row: Row) -> tuple[str, ...]:
    """`row` in words, one cell a column of `COLUMNS`."""
    spread = f"{number(row.spread[0])}–{number(row.spread[1])}" if row.spread else "–"
    bound = "" if row.target is None else "≥ " if row.better == "higher" else "≤ "
    met = {None: "–", True: "yes"}.get(row.met, f"no, by {100 * (row.shortfall or 0):.3g} %")
    return (
        row.id,
        row.metric,
        row.unit,
        number(row.ours),
        spread,
        bound + number(row.target),
        number(row.published),
        met,
    )


def provenance(result: Result) -> list[str]:
    """What was real and what was simulated, one line each, and whether the run was a quick one."""
    lines = [f"Real: {'; '.join(result.real) or 'nothing'}."]
    lines.append(f"Simulated: {'; '.join(result.simulated) or 'nothing'}.")
    if result.quick:
        lines.append("Quick run on a smaller input: these figures are not the published results.")
    return lines


def markdown(table: Table, result: Result) -> str:
    """The page `docs/results/NAME.md`."""
    lines = [f"# {table.title}", "", f"`{command(result)}` · seeds {', '.join(map(str, result.seeds))}", ""]
    lines += [f"{line}\n" for line in provenance(result)]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in result.rows]
    lines += ["", table.remark] if table.remark else []
    return "\n".join([*lines, "", f"![{result.name}]({result.name}.svg)", ""])


def command(result: Result) -> str:
    """The command that makes `result` again."""
    kind, name = ("bench", result.name.removeprefix("bench-")) if result.name.startswith("bench-") else ("lab run", "")
    return f"mmcache {kind} {name or result.name}" + (" --quick" if result.quick else "")


def write(table: Table, result: Result, folder: Path) -> list[Path]:
    """Write the three files, and the table's further ones, into `folder`, which is made if missing; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "json": json.dumps(result.as_json(), indent=2, ensure_ascii=False) + "\n",
        "md": markdown(table, result),
        "svg": svg(table, result),
        **table.pages(result),
    }
    paths = []
    for kind, page in pages.items():
        path = folder / f"{result.name}.{kind}"
        path.write_text(page, encoding="utf-8")
        paths.append(path)
    return paths


def screen(table: Table, result: Result) -> RenderableType:
    """A rich renderable: our figures beside the published ones, then what was real."""
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(title=table.title, title_justify="left", title_style="bold")
    shown = [
        column for column in SCREEN if column != "published" or any(row.published is not None for row in result.rows)
    ]
    for column in shown:
        right = column in ("ours", "p10–p90", "target", "published")
        grid.add_column(column, justify="right" if right else "left", overflow="fold", no_wrap=column != "id")
    for row in result.rows:
        cell = dict(zip(COLUMNS, cells(row), strict=True))
        cell["ours"] += f" {row.unit}" if row.ours is not None else ""
        style = {None: "", True: "green", False: "red"}[row.met]
        grid.add_row(*(Text(cell[column], style=style if column == "met" else "") for column in shown))
    return Group(grid, *(Text(line, style="dim") for line in provenance(result)))
