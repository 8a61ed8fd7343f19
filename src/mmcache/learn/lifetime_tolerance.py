"""What days of a history were like, and how far one may lie from those before it without the world having changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.histogram import divergence
from mmcache.learn.lifetime_history import Grouped
from mmcache.lifespan.model import LEAST_COUNTS, heat_histogram

FALSE_ALARMS = 0.05
"""Share of the moments of the history at which a histogram would have been called drifted."""
LEAST, MOST = 0.05, 1.05
"""Nats: what chance alone does to a few hundred counts, and three times the published 0.35, so that a history with a
change in it does not teach that changes are nothing."""


def day_histograms(grouped: Grouped, cut: int) -> dict[str, npt.NDArray[np.int64]]:
    """What the day before `cut` was like: uses by group, keys by uses."""
    day = grouped.counted.scale.day
    found = {
        name: sums[:, max(0, cut - day) : cut].sum(axis=1).astype(np.int64)
        for name, sums in grouped.sums.items()
        if len(sums)
    }
    return {**found, "heat": heat_histogram(grouped.counted.uses_in(cut - day, cut))}


def baseline(grouped: Grouped, cuts: range) -> dict[str, npt.NDArray[np.int64]]:
    """The days of a span together, frozen."""
    found: dict[str, npt.NDArray[np.int64]] = {}
    for cut in range(cuts.start, cuts.stop, grouped.counted.scale.day):
        for name, counts in day_histograms(grouped, cut).items():
            found[name] = found.get(name, 0) + counts
    return found


def tolerances(grouped: Grouped, cuts: range) -> dict[str, float]:
    """By histogram: KL in nats that one moment in twenty of a span passes, each day held against all days of the span
    before it, of which there are enough to look back on. Without such moments, nothing."""
    scale = grouped.counted.scale
    days = [day_histograms(grouped, cut) for cut in cuts]
    found: dict[str, float] = {}
    for name in days[0] if days else ():
        counts = np.stack([one[name] for one in days])
        before = np.cumsum(counts[:: scale.day], axis=0)
        places = [n for n in range(max(scale.intervals, scale.day), len(days)) if counts[n].sum() >= LEAST_COUNTS]
        far = [float(divergence(counts[n], before[(n - scale.day) // scale.day])) for n in places]
        if far:
            found[name] = float(np.clip(np.quantile(far, 1.0 - FALSE_ALARMS), LEAST, MOST))
    return found
