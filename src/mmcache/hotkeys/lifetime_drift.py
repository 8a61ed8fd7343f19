"""Whether inputs still are what a model was trained on: KL of the last day from the training's days, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.histogram import divergence
from mmcache.lifespan.model import LEAST_COUNTS

THRESHOLD = 0.35
"""Nats; as published, and where nothing was learned of how far days lie apart."""


class Drift(NamedTuple):
    """The histogram that lies farthest from its baseline, in units of its threshold."""

    name: str
    divergence: float
    """KL(now ‖ baseline), nats."""
    threshold: float
    drifted: bool


NO_DRIFT = Drift("", 0.0, THRESHOLD, False)


def look(
    now: Mapping[str, npt.NDArray[np.int64]],
    baseline: Mapping[str, npt.NDArray[np.int64]],
    thresholds: Mapping[str, float] | float = THRESHOLD,
    least: int = LEAST_COUNTS,
) -> Drift:
    """Compare histograms by name, each with its threshold, or all with one. What has no baseline, or too few counts, or
    other bins, is not compared."""
    found = NO_DRIFT
    for name, counts in now.items():
        base = baseline.get(name)
        if base is None or len(base) != len(counts) or counts.sum() < least:
            continue
        kl = float(divergence(counts, base))
        limit = thresholds if isinstance(thresholds, int | float) else thresholds.get(name, THRESHOLD)
        if kl / limit > found.divergence / found.threshold:
            found = Drift(name, kl, limit, kl > limit)
    return found
