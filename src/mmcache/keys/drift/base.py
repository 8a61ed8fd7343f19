"""What a drift monitor is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import msgspec

from mmcache.keys.drift.histogram import MOST_BINS
from mmcache.model.errors import SettingsError

MOST_SAMPLES = 1 << 20
MOST_PROJECTIONS = 256


@dataclass(frozen=True)
class DriftSettings:
    """How finely, how soon, how surely."""

    window: int = 256
    """Samples between two looks."""
    long: int = 8
    """A second look is taken at so many windows together: later, and it sees slighter moves."""
    baseline: int = 64
    """Windows that the baseline is made of. Let it span a day or more, or other hours will look like drift."""
    projections: int = 16
    bins: int = 16
    false_alarms: float = 1.0
    """Expected in a month of 30 days, for each stream, at the rate of requests that the baseline showed."""
    seed: int = 0
    """Of the random directions."""

    def __post_init__(self) -> None:
        if min(self.window, self.long) < 1 or not 1 <= self.projections <= MOST_PROJECTIONS:
            raise SettingsError(f"window and long are at least 1, projections 1 to {MOST_PROJECTIONS}: {self}")
        if not 2 <= self.bins <= MOST_BINS:
            raise SettingsError(f"a histogram has 2 to {MOST_BINS} bins, not {self.bins}")
        if self.baseline < 3 * self.long or self.samples > MOST_SAMPLES:
            raise SettingsError(f"a baseline is at least three long windows and at most {MOST_SAMPLES} samples: {self}")
        if not (isfinite(self.false_alarms) and self.false_alarms > 0):
            raise SettingsError(f"false alarms are a number a month, more than 0, not {self.false_alarms!r}")

    @property
    def samples(self) -> int:
        """In a baseline."""
        return self.window * self.baseline


class DriftAlarm(msgspec.Struct, frozen=True):
    """KL(now ‖ baseline) passed its threshold."""

    stream: str
    """Usually the modality."""
    when: float
    """As `now` was given: Unix seconds."""
    sample: int
    """How many samples had come since the baseline ended."""
    window: int
    """Samples looked at."""
    projection: int
    """Which one moved most, in units of its threshold; −1: all of them together."""
    divergence: float
    """KL(now ‖ baseline) of it, nats; the mean of all where `projection` is −1."""
    threshold: float
    shift: float
    """How far its mean has gone, in standard deviations of the baseline; the farthest one's where it is −1."""


@dataclass(frozen=True)
class StreamStatus:
    """One stream, for people and programs."""

    stream: str
    tag: str
    state: str
    """`learning`, `steady` or `drifted`."""
    learned: int
    """Samples of the baseline so far, of `wanted`."""
    wanted: int
    samples: int
    """Compared since."""
    divergence: float
    """KL(now ‖ baseline) of the latest look, nats, of the statistic that was nearest to its threshold."""
    threshold: float
    since: float | None
    """When the alarm that is on was raised, Unix seconds."""
    raised: int
    """Alarms since the baseline ended."""
    alarms: tuple[DriftAlarm, ...]
    """The latest of them."""
    baseline_seconds: float
    """What the baseline spans; less than a day, and other hours may look like drift."""
    statistics: str
    """Digest of the frozen statistics that features are normalised by; empty while they are fitted."""
