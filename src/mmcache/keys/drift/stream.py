"""`Watcher`: compares a stream with its baseline, window by window, and raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mmcache.keys.drift.base import DriftAlarm, DriftSettings
from mmcache.keys.drift.baseline import Baseline
from mmcache.keys.drift.histogram import Counts, Floats, count
from mmcache.keys.drift.threshold import Values, statistics

KEPT_ALARMS = 32


@dataclass
class Tally:
    """What came within a window: counts [K, bins] and sums [K] of the projections."""

    counts: Counts
    sums: Values
    samples: int = 0

    @staticmethod
    def empty(settings: DriftSettings) -> Tally:
        """Of nothing."""
        return Tally(np.zeros((settings.projections, settings.bins), np.int64), np.zeros(settings.projections))

    def add(self, counts: Counts, sums: Values, samples: int) -> None:
        """Count more."""
        self.counts = self.counts + counts
        self.sums = self.sums + sums
        self.samples += samples


@dataclass
class Watcher:
    """The state of one stream that has a baseline. An alarm is raised once, and is off after a quiet long window."""

    name: str
    settings: DriftSettings
    baseline: Baseline
    samples: int = 0
    short: Tally = field(init=False)
    long: Tally = field(init=False)
    divergence: float = 0.0
    """Of the latest look: that of the statistic nearest to its threshold, or farthest beyond."""
    threshold: float = 0.0
    since: float | None = None
    """When the alarm that is on was raised."""
    quiet: int = 0
    """Windows without a crossing since."""
    raised: int = 0
    alarms: list[DriftAlarm] = field(default_factory=list)
    """The latest."""

    def __post_init__(self) -> None:
        self.short, self.long = Tally.empty(self.settings), Tally.empty(self.settings)
        self.threshold = float(self.baseline.short[-1])

    def observe(self, features: Floats, now: float) -> list[DriftAlarm]:
        """Count `features` [n, d]; what was raised meanwhile."""
        raised: list[DriftAlarm] = []
        projected = self.baseline.project(features)
        coded = self.baseline.coded(projected, self.samples)
        while len(coded):
            taken = min(len(coded), self.settings.window - self.short.samples)
            self.short.add(
                count(coded[:taken], self.settings.bins), projected[:taken].sum(0, dtype=np.float64), taken
            )  # fmt: skip
            self.samples += taken
            coded, projected = coded[taken:], projected[taken:]
            if self.short.samples == self.settings.window:
                raised += self._judge(now)
        return raised

    def _looks(self) -> Iterator[tuple[Tally, Values]]:
        """What there is to look at now that a window is full; starts the next one."""
        full, self.short = self.short, Tally.empty(self.settings)
        self.long.add(full.counts, full.sums, full.samples)
        yield full, self.baseline.short
        if self.long.samples == self.settings.window * self.settings.long:
            whole, self.long = self.long, Tally.empty(self.settings)
            yield whole, self.baseline.long

    def _judge(self, now: float) -> list[DriftAlarm]:
        seen = [self._compare(tally, limits, now) for tally, limits in self._looks()]
        worst = max(seen, key=lambda alarm: alarm.divergence / alarm.threshold)
        self.divergence, self.threshold = worst.divergence, worst.threshold
        if worst.divergence <= worst.threshold:
            self.quiet += 1
            # A slight move crosses in long windows only, so two of them must have been quiet.
            if self.quiet >= 2 * self.settings.long:
                self.since = None
            return []
        self.quiet = 0
        if self.since is not None:
            return []
        self.since = now
        self.raised += 1
        self.alarms = [*self.alarms, worst][-KEPT_ALARMS:]
        return [worst]

    def _compare(self, tally: Tally, limits: Values, now: float) -> DriftAlarm:
        base = self.baseline
        found = statistics(tally.counts, base.counts)
        place = int(np.argmax(found / limits))
        shift = (tally.sums / tally.samples - base.mean) / base.deviation
        together = place == len(found) - 1
        farthest = int(np.abs(shift).argmax()) if together else place
        return DriftAlarm(
            self.name, now, self.samples, tally.samples, -1 if together else place, float(found[place]),
            float(limits[place]), float(shift[farthest]),
        )  # fmt: skip
