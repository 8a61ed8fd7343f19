"""A rule that was tried instead of the product's: noise is that of means of one, three and five windows, side by side.

The spread is that of the upper side, as clusters make a long tail, and what came in an alarm is left out of it. Its
constants were chosen on streams that are drawn (`bursts_development`), so that each width alone has one false alarm a
day there (before alarms were left out; since then one to three), and were not touched after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, median

from mmcache.scale.bursts import POISSON_DEVIATIONS, BurstDetector
from mmcache.scale.days import Days
from mmcache.scale.spec import BurstSpec
from mmcache.scale.window import Window

WIDTHS = {1: 6.5, 3: 4.2, 5: 3.8}
"""By windows of which the mean is taken: how many spreads above the median are no noise."""
FEWEST = 5
"""Means, before their spread is known."""
MEMORY = 60
"""Windows."""
_DECILE = 1.2816
"""Standard deviations of a normal distribution between its median and its ninth decile."""
_SPEC = BurstSpec()


class Wide:
    """The product's baseline, with its days; other noise. It looks every `step` seconds."""

    def __init__(self, step: float, widths: Mapping[int, float] = WIDTHS) -> None:
        self._step = step
        self._usual = BurstDetector(_SPEC)
        self._days = Days()
        self._widths = widths
        self._recent = {wide: Window() for wide in (1, *widths)}
        self._noise: dict[int, tuple[float, float]] = {}
        self._windows: list[tuple[float, float, bool]] = []
        """(middle, rate, in an alarm), oldest first."""
        self._filled = (0.0, 0.0)
        self._first = True
        self._on = False
        self._low_since: float | None = None

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        level = self._usual.observe(at, rate).baseline
        if self._first:  # since when is not known
            self._first = False
            return False
        for wide, window in self._recent.items():
            window.add(at, self._step, rate * self._step, wide * _SPEC.window_seconds)
        self._remember(at, rate)
        if level is not None:
            self._judge(at, level)
        return self._on

    def _judge(self, at: float, level: float) -> None:
        qps, beyond = self._recent[1].rate, self._beyond(level)
        if not self._on:
            self._on, self._low_since = qps > _SPEC.factor * level and beyond > 1, None
            return
        nearer = (_SPEC.end_factor - 1) / (_SPEC.factor - 1)
        if qps < _SPEC.end_factor * level or beyond < nearer:
            self._low_since = at if self._low_since is None else self._low_since
            self._on = at - self._low_since < _SPEC.quiet_seconds
        else:
            self._low_since = None

    def _beyond(self, level: float) -> float:
        """1 where noise ends; of all widths, the one that says most."""
        found = 0.0
        for wide, (middle, margin) in self._noise.items():
            window = self._recent[wide]
            seconds = window.covered
            if seconds >= wide * _SPEC.window_seconds / 2:
                # After an alarm that became usual, noise is known of what was before it: it grew with the level.
                usual = max(middle, level)
                grown = margin * usual / middle if middle > 0 else margin
                root = sqrt(usual * seconds + 3 / 8) + POISSON_DEVIATIONS / 2
                found = max(found, (window.rate - usual) / max(grown, (root**2 - 3 / 8) / seconds - usual))
        return found

    def _remember(self, at: float, rate: float) -> None:
        seconds, requests = self._filled[0] + self._step, self._filled[1] + rate * self._step
        if seconds < _SPEC.window_seconds:
            self._filled = (seconds, requests)
            return
        self._filled = (0.0, 0.0)
        self._windows = [*self._windows, (at - seconds / 2, requests / seconds, self._on)][-MEMORY:]
        self._days.add(at - seconds / 2, seconds, requests / seconds)
        carried = self._days.carried([(middle, rate) for middle, rate, _ in self._windows], at)
        calm = [rate for rate, (_, _, loud) in zip(carried, self._windows, strict=True) if not loud]
        for wide, deviations in self._widths.items():
            found = spread(calm, wide, deviations)
            if found is not None:
                self._noise[wide] = found


def spread(rates: Sequence[float], wide: int, deviations: float) -> tuple[float, float] | None:
    """(median, what is beyond noise above it) of all means of `wide` neighbours in `rates`; None: they are too few.

    The ninth decile above the median, or the median absolute deviation, if that is larger. From few means, which
    overlap, it is not known well, and counts as larger.
    """
    means = sorted(fmean(rates[first : first + wide]) for first in range(len(rates) - wide + 1))
    if len(means) < FEWEST:
        return None
    level = median(means)
    tail = (means[round(0.9 * (len(means) - 1))] - level) / _DECILE
    found = max(tail, 1.4826 * median(abs(one - level) for one in means))
    return level, deviations * found * (1 + wide / len(means))
