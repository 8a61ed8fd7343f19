"""How much more than usual chance brings: of requests that come one by one, and of such that come in clusters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median

from mmcache.scale.days import short

WIDTHS = {1: 6.5, 3: 4.2, 5: 3.8}
"""By windows of which the mean is taken: how many spreads above the median are no noise. A wider mean has less noise,
so it finds a burst that is small and lasts; a single window finds a large one soon. They were chosen on streams that
are drawn (`mmcache.lab.bursts_development`): with these, each width alone has one false alarm a day there."""
FEWEST = 5
"""Means, before their spread is known."""
POISSON_DEVIATIONS = 5.0
_DECILE = 1.2816
"""Standard deviations of a normal distribution between its median and its ninth decile."""


def spread(rates: Sequence[float], wide: int, deviations: float) -> tuple[float, float] | None:
    """(median, what is beyond noise above it) of all means of `wide` neighbours in `rates`; None: they are too few.

    The spread is that of the upper side, the ninth decile above the median, as clusters make a long tail; or the median
    absolute deviation (× 1.4826: Hampel, J. Am. Stat. Assoc. 69, 1974), if that is larger. From few means, which
    overlap, it is not known well, and counts as larger.
    """
    means = sorted(fmean(rates[first : first + wide]) for first in range(len(rates) - wide + 1))
    if len(means) < FEWEST:
        return None
    level = median(means)
    tail = (means[round(0.9 * (len(means) - 1))] - level) / _DECILE
    found = max(tail, 1.4826 * median(abs(one - level) for one in means))
    return short(level), short(deviations * found * (1 + wide / len(means)))


def poisson(level: float, seconds: float) -> float:
    """Above a rate of `level` a second, what is beyond `POISSON_DEVIATIONS` of requests that come one by one, in so
    many seconds; on the scale on which that noise is the same at every rate (2·√(n + 3/8): Anscombe, Biometrika 35,
    1948)."""
    return ((sqrt(level * seconds + 3 / 8) + POISSON_DEVIATIONS / 2) ** 2 - 3 / 8) / seconds - level
