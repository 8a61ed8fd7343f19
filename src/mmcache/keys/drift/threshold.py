"""Thresholds from the baseline itself, for a stated rate of false alarms.

Under stationarity 2·n·KL is nearly χ² (Wilks, 1938), whose cube root is nearly normal (Wilson & Hilferty, 1931), so
the far quantile comes from the mean and deviation of cube roots. These are measured twice, and the larger threshold
counts:

* on windows drawn at random from the baseline: what chance alone does to a window of this size;
* on the baseline's own windows in their order, each against the rest of it: also what repeats, bursts and hours of
  the day do. As few windows say little of their tail, this is a prediction bound (Student's t), and for the mean of
  all projections one of logarithms.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.histogram import Codes, Counts, count, divergence

Values = npt.NDArray[np.float64]

DRAWS = 400
_LEAST_TAIL = 1e-12


def statistics(now: Counts, base: Counts) -> Values:
    """float64 [..., K + 1]: the divergence of each projection, and last their mean.

    One moved direction shows in its own divergence, a slight move of all of them in the mean.
    """
    each = divergence(now, base)
    return np.concatenate([each, each.mean(-1, keepdims=True)], axis=-1)


def tails(tail: float, projections: int) -> Values:
    """float64 [K + 1]: `tail`, a look's whole probability, shared out: half to the mean (Bonferroni)."""
    return np.array([tail / 2 / projections] * projections + [tail / 2])


def thresholds(coded: Codes, bins: int, window: int, tail: float, seed: int) -> Values:
    """float64 [K + 1] for looks at `window` samples, each alarming with probability `tail` in all.

    `coded`: the baseline's bins [n, K] in order of arrival; `window` divides n.
    """
    return np.maximum(by_chance(coded, bins, window, tail, seed), in_order(coded, bins, window, tail))


def by_chance(coded: Codes, bins: int, window: int, tail: float, seed: int) -> Values:
    """The thresholds if samples were independent."""
    total = count(coded, bins)
    drawn = np.stack(_drawn(coded, bins, window, total, seed)) * (1 + window / len(coded))  # the baseline is finite too
    return _quantile(np.cbrt(drawn), [_normal(share) for share in tails(tail, coded.shape[1])], 0.0)


def in_order(coded: Codes, bins: int, window: int, tail: float) -> Values:
    """The thresholds that the baseline's own windows ask for, each against the rest of it."""
    total = count(coded, bins)
    step = min(window, max(1, len(coded) // 64))
    starts = range(0, len(coded) - window + 1, step)
    parts = [count(coded[start : start + window], bins) for start in starts]
    own = np.stack([statistics(part, total - part) for part in parts])
    independent = len(coded) // window
    far = [_student(share, independent - 1) for share in tails(tail, coded.shape[1])]
    found = _quantile(np.cbrt(own), far, 1 / independent)
    logs = np.log(own[:, -1])  # repeats make the mean of all skew to the right, more than a cube root takes away
    found[-1] = max(found[-1], np.exp(logs.mean() + far[-1] * logs.std(ddof=1) * np.sqrt(1 + 1 / independent)))
    return found


def _drawn(coded: Codes, bins: int, window: int, total: Counts, seed: int) -> list[Values]:
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(0, len(coded), window) for _ in range(DRAWS))
    return [statistics(count(coded[rows], bins), total) for rows in drawn]


def _quantile(roots: Values, distances: list[float], extra: float) -> Values:
    """(mean + distance · deviation · √(1 + extra))³, column by column."""
    deviation = roots.std(0, ddof=1) * np.sqrt(1 + extra)
    return np.asarray((roots.mean(0) + np.array(distances) * deviation) ** 3)


def _normal(tail: float) -> float:
    return -NormalDist().inv_cdf(min(0.5, max(tail, _LEAST_TAIL)))


def _student(tail: float, freedom: int) -> float:
    """Upper quantile of Student's t: the expansion 26.7.5 of Abramowitz & Stegun (1964)."""
    z, v = _normal(tail), float(freedom)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / v + g2 / v**2 + g3 / v**3 + g4 / v**4
