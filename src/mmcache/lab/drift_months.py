"""How often the monitor raises while nothing moves, and how soon when something does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift import DriftMonitor, DriftSettings
from mmcache.keys.drift.baseline import Baseline, look_tail
from mmcache.keys.drift.stream import Watcher
from mmcache.keys.drift.threshold import independent_thresholds

Floats = npt.NDArray[np.float32]
Draw = Callable[[int, int], Floats]
"""(first sample, how many) → features [n, d]: a stream."""

AN_HOUR = 500
SECONDS = 3600.0 / AN_HOUR
MONTH = 30 * 24 * AN_HOUR
PATIENCE = 40_000
"""Requests after which a move that was not raised counts as missed."""
CHUNK = 8_192


def even(pool: Floats, seed: int, run: int = 0) -> Draw:
    """Every request another picture, drawn evenly. Another `run` of one `seed` is the same traffic, drawn anew."""
    rng = np.random.default_rng([seed, run])
    return lambda start, count: pool[rng.integers(0, len(pool), count)]


def repeated(pool: Floats, seed: int, run: int = 0) -> Draw:
    """Zipf's law (exponent 0.9), and every second request on average stays with the picture before."""
    rng = np.random.default_rng([seed, run])
    shares = 1 / np.arange(1, len(pool) + 1) ** 0.9
    shares /= shares.sum()
    order = np.random.default_rng(seed).permutation(len(pool))

    def draw(start: int, count: int) -> Floats:
        fresh = rng.random(count) < 0.5
        fresh[0] = True
        picks = order[rng.choice(len(pool), int(fresh.sum()), p=shares)]
        rows: Floats = pool[picks[np.cumsum(fresh) - 1]]
        return rows

    return draw


def daily(pool: Floats, seed: int, run: int = 0) -> Draw:
    """The two fifths that are highest in the first feature are asked for twice as often at midnight as at noon."""
    rng = np.random.default_rng([seed, run])
    night = pool[:, 0] >= np.quantile(pool[:, 0], 0.6)
    by_night, by_day = np.flatnonzero(night), np.flatnonzero(~night)
    usual = night.mean()

    def draw(start: int, count: int) -> Floats:
        hours = (start + np.arange(count)) / AN_HOUR
        share = usual * (1 + np.cos(2 * np.pi * hours / 24) / 3)
        dark = rng.random(count) < share
        picks = np.where(dark, rng.choice(by_night, count), rng.choice(by_day, count))
        return pool[picks]

    return draw


def learned(draw: Draw, settings: DriftSettings) -> tuple[DriftMonitor, Floats]:
    """A monitor with its baseline of `draw`, at 500 requests an hour; and the rows of it."""
    monitor, rows = DriftMonitor(settings), draw(0, settings.samples)
    monitor.observe("lab", rows[:1], now=0.0)
    monitor.observe("lab", rows[1:], now=settings.samples * SECONDS)
    return monitor, rows


def by_chance_only(monitor: DriftMonitor, rows: Floats) -> DriftMonitor:
    """The same with thresholds that know of chance alone, not of what the windows of the baseline `rows` did."""
    settings, base = monitor.settings, baseline(monitor)
    coded = base.coded(base.project(rows), 0)
    short, long = (
        independent_thresholds(
            coded, settings.bins, settings.window * windows, look_tail(settings, base.until - base.since, windows),
            settings.seed,
        )
        for windows in (1, settings.long)
    )  # fmt: skip
    other = DriftMonitor(settings)
    other.adopt("lab", replace(base, short=short, long=long))
    return other


def baseline(monitor: DriftMonitor) -> Baseline:
    """The one that was learned."""
    stage = monitor.stages["lab", ""]
    if not isinstance(stage, Watcher):
        raise ValueError("this monitor still learns")
    return stage.baseline


def month(monitor: DriftMonitor, draw: Draw) -> int:
    """Alarms in 30 days that go on as the baseline was."""
    raised, first = 0, monitor.settings.samples
    for start in range(0, MONTH, CHUNK):
        count = min(CHUNK, MONTH - start)
        now = (first + start + count) * SECONDS
        raised += len(monitor.observe("lab", draw(first + start, count), now=now))
    return raised


@dataclass(frozen=True)
class Delay:
    """How soon one move was raised."""

    requests: float
    """Until the alarm; `PATIENCE` where none came."""
    found: bool
    divergence: float
    """KL when it was raised; 0 where it was not."""


def delay(monitor: DriftMonitor, moved: Draw) -> Delay:
    """Requests from the move until the alarm."""
    window, first = monitor.settings.window, monitor.settings.samples
    for start in range(0, PATIENCE, window):
        now = (first + start + window) * SECONDS
        for alarm in monitor.observe("lab", moved(first + start, window), now=now):
            return Delay(float(alarm.sample), True, alarm.divergence)
    return Delay(float(PATIENCE), False, 0.0)
