"""The picture of table `bursts`: some hours of a day, who found what, what was paid against what was lacking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mmcache.lab.bursts_rules import OURS, rules
from mmcache.lab.bursts_runs import STEP
from mmcache.lab.bursts_sizing import Cost
from mmcache.lab.bursts_truth import Burst
from mmcache.lab.table import Result
from mmcache.lab.traces.trace import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {OURS: "#2f7d5b", "hpa": "#b5482f", "foreseen": "#8793a6"}
_HOURS = 8
_MINUTE = 60


def draw(
    figure: Figure, result: Result, counts: Floats, bursts: Sequence[Burst], costs: Mapping[str, Cost], carries: float
) -> None:
    """counts: requests of each step, the bursts of which begin on the second day."""
    figure.set_size_inches(11, 7.5)
    grid = figure.add_gridspec(2, 2, height_ratios=[1.2, 1])
    _day(figure.add_subplot(grid[0, :]), counts, bursts, costs, carries)
    ours = {row.id: row.ours for row in result.rows}
    _detection(figure.add_subplot(grid[1, 0]), ours)
    axes = figure.add_subplot(grid[1, 1])
    for name in costs:
        x, y = ours[f"sized/hours/{name}"] or 0.0, ours[f"sized/over/{name}"] or 0.0
        axes.plot([x], [y], "o", color=_COLOURS.get(name, "#c9a227"))
        axes.annotate(name, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.set_xlabel("shard-hours a day")
    axes.set_ylabel("% of the time over capacity")
    axes.set_yscale("symlog", linthresh=0.1)
    for one in figure.axes:
        one.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _day(
    axes: Axes, counts: Floats, bursts: Sequence[Burst], costs: Mapping[str, Cost], carries: float
) -> None:  # fmt: skip
    first = int(86_400 / STEP)
    many = int(_HOURS * 3600 / STEP)
    steps = int(_MINUTE / STEP)
    shown = counts[first : first + many]
    minutes = shown[: len(shown) // steps * steps].reshape(-1, steps).mean(1) / STEP
    hours = np.arange(len(minutes)) / 60
    axes.plot(hours, minutes, color="#333333", linewidth=0.6, label="requests a second, by the minute")
    for burst in bursts:
        start = (burst.start - 86_400) / 3600
        if 0 <= start < _HOURS:
            axes.axvspan(start, start + burst.seconds / 3600, color="#c9a227", alpha=0.3, linewidth=0)
    for name in (OURS, "hpa"):
        line = costs[name].served[first : first + many : steps] * carries
        axes.step(hours, line[: len(hours)], where="post", color=_COLOURS[name], linewidth=1.2,
                  label=f"what {name}'s shards can carry")  # fmt: skip
    axes.set_xlabel("hour of the second day (planted bursts shaded)")
    axes.legend(frameon=False, fontsize=8)


def _detection(axes: Axes, ours: Mapping[str, float | None]) -> None:
    marks = {"azure-code": "o", "azure-conv": "s", "mooncake": "^", "servegen": "D"}
    names = list(rules(STEP, 0.0))
    for stream, mark in marks.items():
        for name, colour in zip(names, ("#2f7d5b", "#7a4fa3", "#b5482f", "#8793a6", "#4c78a8", "#c9a227"), strict=True):
            x, y = ours.get(f"{stream}/false/{name}"), ours.get(f"{stream}/found/{name}")
            if x is not None and y is not None:
                axes.plot([x], [y], mark, color=colour, markersize=6, alpha=0.8,
                          label=name if stream == "servegen" else None)  # fmt: skip
    for stream, mark in marks.items():
        axes.plot([], [], mark, color="#333333", markersize=5, label=stream)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("false alarms a day")
    axes.set_ylabel("% of planted bursts found")
    axes.legend(frameon=False, fontsize=7)
