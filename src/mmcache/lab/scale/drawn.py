"""The plot of the table `scale`: what callers saw over time, and how many shards served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmcache.lab.load.summary import times
from mmcache.lab.scale.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HITS, _P99, _SHARDS, _SHADE = "#2f7d5b", "#b5482f", "#8793a6", "#eef1f5"
_PHASES = (("out", "out done"), ("in", "in done"), ("burst", "all serve"))


def draw(trials: Sequence[Trial], figure: Figure) -> None:
    """A line of panels a trial: hits and shards on the left, P99 on the right."""
    figure.set_size_inches(9, 1.9 * len(trials) + 0.4)
    panels = figure.subplots(len(trials), 2, squeeze=False)
    for trial, (left, right) in zip(trials, panels, strict=True):
        lines = list(trial.lines())
        seconds = [second for second, *_ in lines]
        for axes in (left, right):
            for begin, end in _PHASES:
                if begin in trial.marks and end in trial.marks:
                    axes.axvspan(trial.marks[begin], trial.marks[end], color=_SHADE, zorder=0)
            if "killed" in trial.marks:
                axes.axvline(trial.marks["killed"], color="black", linewidth=0.8, linestyle=":")
            axes.spines[["top", "right"]].set_visible(False)
        hits = [100 * share if (share := counts.hit_share) is not None else float("nan") for *_, counts in lines]
        left.plot(seconds, hits, color=_HITS, linewidth=1.2)
        left.set_ylim(0, 105)
        left.set_ylabel("hits, %", color=_HITS)
        left.set_title(f"{trial.name} ({trial.server})", loc="left", fontsize=9)
        shards = left.twinx()
        shards.step(seconds, [count for _, count, _, _ in lines], where="post", color=_SHARDS, linewidth=1.0)
        shards.set_ylim(0, 6)
        shards.set_ylabel("shards", color=_SHARDS)
        shards.spines[["top"]].set_visible(False)
        slow = [times(counts)["p99_ms"] or float("nan") for *_, counts in lines]
        right.plot(seconds, slow, color=_P99, linewidth=1.2)
        right.set_yscale("log")
        right.set_ylabel("P99, ms", color=_P99)
    for axes in panels[-1]:
        axes.set_xlabel("seconds; shaded: shards come or go; dotted: a kill")
