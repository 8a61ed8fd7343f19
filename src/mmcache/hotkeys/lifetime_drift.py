"""Whether inputs still are what a model was trained on: KL of the last day from the training's days, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.histogram import divergence

THRESHOLD = 0.35
"""Nats; as published."""
LEAST = 200
"""Uses or keys that a histogram must have: of fewer, chance alone makes it differ."""


class Drift(NamedTuple):
    """The histogram that lies farthest from its baseline."""

    name: str
    divergence: float
    """KL(now ‖ baseline), nats."""
    drifted: bool


NO_DRIFT = Drift("", 0.0, False)


def look(
    now: Mapping[str, npt.NDArray[np.int64]],
    baseline: Mapping[str, npt.NDArray[np.int64]],
    threshold: float = THRESHOLD,
    least: int = LEAST,
) -> Drift:
    """Compare histograms by name. What has no baseline, or too few counts, or other bins, is not compared."""
    found = NO_DRIFT
    for name, counts in now.items():
        base = baseline.get(name)
        if base is None or len(base) != len(counts) or counts.sum() < least:
            continue
        kl = float(divergence(counts, base))
        if kl > found.divergence:
            found = Drift(name, kl, kl > threshold)
    return found
