"""The default plot of a table: one panel a unit, a bar a row, targets and published figures as marks.

Output is deterministic: no date, fixed ids, text as text.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mmcache.lab.table import Result, Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MET, _MISSED, _SHOWN = "#2f7d5b", "#b5482f", "#8793a6"
_LOG_FROM = 50.0
"""A panel whose largest bar is this many times its smallest gets a logarithmic axis."""


def svg(table: Table, result: Result) -> str:
    """`table`'s plot of `result` as SVG text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": result.name, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(layout="constrained")
        FigureCanvasSVG(figure)
        table.plot(result, figure)
        page = io.StringIO()
        figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"


def bars(result: Result, figure: Figure) -> None:
    """Horizontal bars, one panel a unit."""
    panels: dict[tuple[str, str], list[Row]] = {}
    for row in result.rows:
        if row.ours is not None:
            panels.setdefault((row.unit, row.better), []).append(row)
    figure.set_size_inches(8, max(1.6, sum(0.9 + 0.3 * len(rows) for rows in panels.values())))
    grid = figure.subplots(
        max(1, len(panels)), 1, squeeze=False, height_ratios=[1 + len(rows) for rows in panels.values()] or [1]
    )
    for axes, ((unit, better), rows) in zip(grid[:, 0], panels.items(), strict=False):
        _panel(axes, rows)
        axes.set_xlabel(f"{unit} ({better} is better)")
    figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _panel(axes: Axes, rows: list[Row]) -> None:
    labels = [row.id for row in rows]
    ours = [row.ours or 0.0 for row in rows]
    colours = [_SHOWN if row.met is None else _MET if row.met else _MISSED for row in rows]
    whiskers = [
        [max(0.0, value - row.spread[0]) if row.spread else 0.0 for value, row in zip(ours, rows, strict=True)],
        [max(0.0, row.spread[1] - value) if row.spread else 0.0 for value, row in zip(ours, rows, strict=True)],
    ]
    axes.barh(labels, ours, color=colours, xerr=whiskers, ecolor="#333333", height=0.7)
    axes.invert_yaxis()
    positive = [value for value in ours if value > 0]
    if len(positive) == len(ours) and max(positive) > _LOG_FROM * min(positive):
        axes.set_xscale("log")
    for place, row in enumerate(rows):
        for value, mark, label in ((row.target, "|", "target"), (row.published, "D", "published")):
            if value is not None:
                axes.plot([value], [place], mark, color="black", markersize=14 if mark == "|" else 5, label=label)
    handles, names = axes.get_legend_handles_labels()
    if names:
        unique = dict(zip(names, handles, strict=True))
        axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
