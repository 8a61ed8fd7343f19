"""Thresholds from the baseline itself, for a stated rate of false alarms.

Under stationarity 2·n·KL is nearly χ² (Wilks, 1938), whose cube root is nearly normal (Wilson & Hilferty, 1931), so
the far quantile comes from the mean and deviation of cube roots, and their skewness (Cornish & Fisher, 1938). These are
measured twice, and the larger threshold counts:

* on windows put together from short runs of the baseline (block bootstrap, Künsch, 1989): what chance does to a window
  of this size, where samples come in visits and some come often;
* on the baseline's own windows in their order, each against the rest of it: also what hours of the day do. As few
  windows say little of their tail, this is a prediction bound (Student's t).
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.histogram import Codes, Counts, count, divergence

Values = npt.NDArray[np.float64]

DRAWS = 800
RUN = 32
"""Samples that are drawn together."""
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
    total = count(coded, bins)
    shares = tails(tail, coded.shape[1])
    drawn = np.cbrt(_drawn(coded, bins, window, RUN, seed))
    skew = _skewness(drawn)
    by_chance = _quantile(drawn, np.array([_normal(share) for share in shares]), skew)
    step = min(window, max(1, len(coded) // 64))
    starts = range(0, len(coded) - window + 1, step)
    parts = [count(coded[start : start + window], bins) for start in starts]
    own = np.cbrt(np.stack([statistics(part, total - part) for part in parts]))
    independent = len(coded) // window
    far = np.array([_student(share, independent - 1) for share in shares]) * np.sqrt(1 + 1 / independent)
    return np.asarray(np.maximum(by_chance, _quantile(own, far, skew)), np.float64)


def independent_thresholds(coded: Codes, bins: int, window: int, tail: float, seed: int) -> Values:
    """The thresholds if samples were independent of each other, as a textbook has it: what the lab compares with."""
    drawn = np.cbrt(_drawn(coded, bins, window, 1, seed))
    far = np.array([_normal(share) for share in tails(tail, coded.shape[1])])
    return _quantile(drawn, far, _skewness(drawn))


def _drawn(coded: Codes, bins: int, window: int, run: int, seed: int) -> Values:
    """[draws, K + 1]: statistics of windows put together from runs of `run` samples of the baseline."""
    rng, total = np.random.default_rng(seed), count(coded, bins)
    run = min(run, window)
    found = []
    for _ in range(DRAWS):
        starts = rng.integers(0, len(coded) - run + 1, -(-window // run))
        rows = (starts[:, None] + np.arange(run)).ravel()[:window]
        found.append(statistics(count(coded[rows], bins), total))
    return np.stack(found) * (1 + window / len(coded))  # the baseline is finite too


def _skewness(roots: Values) -> Values:
    """[K + 1], at least 0: a tail is never taken to be shorter than the normal one."""
    deviation = np.maximum(roots.std(0), np.finfo(np.float64).tiny)
    return np.asarray(np.maximum(0.0, (((roots - roots.mean(0)) / deviation) ** 3).mean(0)), np.float64)


def _quantile(roots: Values, far: Values, skew: Values) -> Values:
    """The cube of the quantile that lies `far` deviations out, were `roots` normal, corrected for their skewness."""
    corrected = far + skew * (far**2 - 1) / 6
    return np.asarray((roots.mean(0) + corrected * roots.std(0, ddof=1)) ** 3)


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
