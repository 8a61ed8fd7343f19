"""`Baseline`: what a stream of features was like, with the thresholds that follow; and how it is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mmcache.keys.drift.base import DriftSettings
from mmcache.keys.drift.histogram import (
    DITHER_ROWS,
    Codes,
    Counts,
    Floats,
    codes,
    count,
    directions,
    dither,
    edges,
)
from mmcache.keys.drift.statistics import FrozenStatistics
from mmcache.keys.drift.threshold import Values, thresholds
from mmcache.model.errors import InvalidInputError

MONTH_SECONDS = 30 * 86_400.0
ASSUMED_MONTH = 360_000.0
"""Samples a month where the baseline's times say nothing: 500 an hour."""
LEAST_DEVIATION = 1e-6
"""Below it a projection did not vary, and one deviation is taken to be 1."""
_LARGEST_TAIL = 0.25


@dataclass(frozen=True, eq=False)
class Baseline:
    """Nothing in it moves."""

    statistics: FrozenStatistics
    axes: Floats
    """float32 [d, K]: the directions of the projections."""
    borders: Floats
    """float32 [K, bins − 1]."""
    counts: Counts
    """[K, bins]."""
    mean: Values
    """float64 [K], of the projected features."""
    deviation: Values
    short: Values
    """Thresholds [K + 1] of one window: each projection's, and the mean's."""
    long: Values
    """Thresholds of a long window."""
    since: float
    until: float
    seed: int
    """Of the dither."""

    @cached_property
    def _noise(self) -> Floats:
        return dither(len(self.borders), self.seed) * self.deviation.astype(np.float32)

    def coded(self, projected: Floats, first: int) -> Codes:
        """uint8 [n, K]: the bins of samples `first`, `first` + 1, …"""
        places = (first + np.arange(len(projected))) % DITHER_ROWS
        return codes(projected + self._noise[places], self.borders)

    def project(self, features: Floats) -> Floats:
        """float32 [n, K]. Raises `InvalidInputError` for features of another width."""
        out: Floats = self.statistics.normalise(features) @ self.axes
        return out


def look_tail(settings: DriftSettings, seconds: float, windows: int) -> float:
    """The probability that one look at so many windows may alarm by chance, if the baseline came in `seconds`."""
    month = settings.samples * MONTH_SECONDS / seconds if seconds > 0 else ASSUMED_MONTH
    looks = max(1.0, month / (settings.window * windows))
    return min(_LARGEST_TAIL, settings.false_alarms / 2 / looks)  # each kind of look gets half of the alarms


@dataclass
class Learner:
    """Collects rows until they make a baseline. Holds at most one window of features and the projected rows."""

    name: str
    settings: DriftSettings
    statistics: FrozenStatistics | None = None
    """Given, or fitted on the first window."""
    raw: list[Floats] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    samples: int = 0
    began: float = 0.0
    _axes: Floats | None = None

    def take(self, features: Floats, now: float) -> int:
        """Take in the first of `features` [n, d]; how many. `complete` says when it is enough."""
        settings = self.settings
        if not self.samples:
            self.began = now
        limit = settings.window if self.statistics is None else settings.samples
        taken = features[: limit - self.samples]
        if self.statistics is None:
            if self.raw and self.raw[0].shape[1] != features.shape[1]:
                raise InvalidInputError(f"{self.name}: features of {self.raw[0].shape[1]} dimensions came before")
            self.raw.append(taken.copy())
            self.samples += len(taken)
            if self.samples < settings.window:
                return len(taken)
            whole, self.raw = np.concatenate(self.raw), []
            self.statistics = FrozenStatistics.fit(whole, name=self.name)
            self.rows.append(self._project(self.statistics, whole))
        else:
            self.rows.append(self._project(self.statistics, taken))
            self.samples += len(taken)
        return len(taken)

    @property
    def complete(self) -> bool:
        """Whether `finish` may be called."""
        return self.samples == self.settings.samples

    def _project(self, frozen: FrozenStatistics, features: Floats) -> Floats:
        if self._axes is None:
            self._axes = directions(frozen.width, self.settings.projections, self.settings.seed)
        out: Floats = frozen.normalise(features) @ self._axes
        return out

    def finish(self, now: float) -> Baseline:
        """The baseline, once complete. Takes about a second: thresholds are measured."""
        settings, frozen, axes = self.settings, self.statistics, self._axes
        if frozen is None or axes is None or not self.complete:
            raise ValueError(f"{self.name}: {self.samples} of {settings.samples} samples make no baseline")
        projected = np.concatenate(self.rows)
        deviation = projected.std(0, dtype=np.float64)
        deviation[deviation < LEAST_DEVIATION] = 1.0
        noise = dither(settings.projections, settings.seed) * deviation.astype(np.float32)
        spread = projected + np.resize(noise, projected.shape)
        borders = edges(spread, settings.bins)
        coded = codes(spread, borders)
        limits = [
            thresholds(
                coded, settings.bins, settings.window * windows, look_tail(settings, now - self.began, windows),
                settings.seed,
            )
            for windows in (1, settings.long)
        ]  # fmt: skip
        return Baseline(
            frozen, axes, borders, count(coded, settings.bins), projected.mean(0, dtype=np.float64), deviation,
            limits[0], limits[1], self.began, now, settings.seed,
        )  # fmt: skip
