"""When a ratio or a rate moved: steps of a series that chance does not explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

FEWEST_BUCKETS = 3
"""On either side of a step."""
SURE = 24.0
"""Twice the log likelihood ratio that a step must reach: for one split χ² with one degree of freedom, so that all the
splits of a day together raise less than one false alarm in a thousand days."""
SURE_OF_A_DIP = 36.0
"""The same for two steps at once: there are a hundred times as many pairs."""
_MEDIAN_CHI2 = 0.4549
_WATCH = 8.0


@dataclass(frozen=True, slots=True)
class Tally:
    """One bucket."""

    t: float
    hits: float
    misses: float
    squares: float
    """Of the weights of all its lookups."""

    @property
    def lookups(self) -> float:
        """All."""
        return self.hits + self.misses


def spread(series: Sequence[Tally]) -> float:
    """How many times the variance of neighbours' difference is that of independent lookups; at least 1.

    The median over neighbours (von Neumann's way), which one step does not move.
    """
    full = [one for one in series if one.lookups > 0]
    found: list[float] = []
    for left, right in pairwise(full):
        both = (left.misses + right.misses) / (left.lookups + right.lookups)
        variance = both * (1 - both) * (left.squares / left.lookups**2 + right.squares / right.lookups**2)
        if variance > 0:
            found.append((left.misses / left.lookups - right.misses / right.lookups) ** 2 / variance)
    return max(1.0, median(found) / _MEDIAN_CHI2) if len(found) >= 2 * FEWEST_BUCKETS else 1.0


def steps(series: Sequence[Tally], *, sure: float = SURE) -> list[int]:
    """Where the miss ratio changed: indices of the first bucket of each new segment, ascending.

    Binary segmentation (Scott & Knott 1974) by the binomial likelihood ratio, over `spread`; where no one step is sure,
    two at once (Olshen et al., circular binary segmentation, 2004): a short dip is no step of what is around it.
    """
    wide = spread(series)
    found: list[int] = []
    open_ = [(0, len(series))]
    while open_:
        start, end = open_.pop()
        at, gain = _best(series[start:end])
        if at and gain / wide >= sure:
            found.append(start + at)
            open_ += [(start, start + at), (start + at, end)]
            continue
        first, last, gain = _dip(series[start:end])
        if last and gain / wide >= max(sure, SURE_OF_A_DIP):
            cuts = [start, start + first, start + last, end]
            found += cuts[1:3]
            open_ += list(pairwise(cuts))
    return sorted(found)


def _best(series: Sequence[Tally]) -> tuple[int, float]:
    lookups = sum(one.lookups for one in series)
    misses = sum(one.misses for one in series)
    squares = sum(one.squares for one in series)
    if not lookups or not squares or not 0 < misses < lookups:
        return 0, 0.0
    weight = squares / lookups  # Kish's design effect: so many lookups tell as much as one unweighted
    best, place, left, left_misses = 0.0, 0, 0.0, 0.0
    whole = likelihood(misses, lookups)
    for at in range(1, len(series) - FEWEST_BUCKETS + 1):
        left += series[at - 1].lookups
        left_misses += series[at - 1].misses
        if at < FEWEST_BUCKETS:
            continue
        apart = likelihood(left_misses, left) + likelihood(misses - left_misses, lookups - left)
        gain = 2 * (apart - whole) / weight
        if gain > best:
            best, place = gain, at
    return place, best


def _dip(series: Sequence[Tally]) -> tuple[int, int, float]:
    """The stretch that is least like what is around it: its first bucket, the one after it, how sure it is."""
    lookups = np.concatenate([[0.0], np.cumsum([one.lookups for one in series])])
    misses = np.concatenate([[0.0], np.cumsum([one.misses for one in series])])
    squares = sum(one.squares for one in series)
    if not squares or not 0 < misses[-1] < lookups[-1]:
        return 0, 0, 0.0
    firsts, lasts = np.triu_indices(len(lookups), FEWEST_BUCKETS)
    apart = (firsts >= FEWEST_BUCKETS) & (lasts <= len(series) - FEWEST_BUCKETS)
    firsts, lasts = firsts[apart], lasts[apart]
    if not len(firsts):
        return 0, 0, 0.0
    shown, missed = lookups[lasts] - lookups[firsts], misses[lasts] - misses[firsts]
    fits = _likelihoods(missed, shown) + _likelihoods(misses[-1] - missed, lookups[-1] - shown)
    place = int(np.argmax(fits))
    gain = 2 * (float(fits[place]) - likelihood(float(misses[-1]), float(lookups[-1])))
    return int(firsts[place]), int(lasts[place]), gain * float(lookups[-1]) / squares


def _likelihoods(misses: NDArray[np.float64], lookups: NDArray[np.float64]) -> NDArray[np.float64]:
    """`likelihood` of many."""
    found = np.zeros(len(misses))
    for part in (misses, lookups - misses):
        some = part > 1e-9 * lookups
        found[some] += part[some] * np.log(part[some] / lookups[some])
    return found


def likelihood(misses: float, lookups: float) -> float:
    """Logarithm of the binomial likelihood, at its largest."""
    hits = lookups - misses
    return sum(part * log(part / lookups) for part in (misses, hits) if part > 0 and lookups > 0)


def onset(events: Sequence[float], exposure: Sequence[float], quiet: int, weight: float = 1.0) -> int:
    """The bucket in which `events` per `exposure` left the rate of the first `quiet` buckets upwards.

    Page's cumulative sum (1954): it grows while buckets are likelier under the rate seen later than under the quiet
    one; the bucket after its last zero before it is sure. `quiet` where it is never sure.
    """
    base = sum(events[:quiet]), sum(exposure[:quiet])
    later = sum(events[quiet:]), sum(exposure[quiet:])
    if not later[1] or not base[1]:
        return quiet
    slow = (base[0] + 0.5 * weight) / base[1]
    fast = later[0] / later[1]
    if fast <= slow:
        return quiet
    height, began = 0.0, 0
    for at, (count, shown) in enumerate(zip(events, exposure, strict=True)):
        height += (count * log(fast / slow) - shown * (fast - slow)) / weight
        if height <= 0:
            height, began = 0.0, at + 1
        elif height >= _WATCH:
            return began
    return quiet
