"""Is it Gamma? The Anderson–Darling test with both parameters estimated from the same sample.

Critical values cannot be those of a known distribution: they depend on the fitted shape (Lockhart and Stephens,
"Goodness-of-fit tests for the Gamma distribution", 1985). `CRITICAL` is a parametric bootstrap of this very test,
20 000 samples a row, n = 400; from n = 30 on they move by less than 6 %. `test_goodness.py` draws them anew.
"""

from __future__ import annotations

import math

import numpy as np

from mmcache.ttl.gamma import Floats, Gamma

LEAST = 30
"""Values below which no verdict is given."""

CRITICAL: dict[float, tuple[float, float]] = {
    0.1: (1.024, 1.511),
    0.2: (0.923, 1.333),
    0.35: (0.859, 1.199),
    0.5: (0.816, 1.133),
    0.75: (0.806, 1.133),
    1.0: (0.785, 1.091),
    2.0: (0.761, 1.039),
    4.0: (0.766, 1.049),
    10.0: (0.756, 1.057),
    100.0: (0.758, 1.042),
}
"""Fitted shape -> what the statistic exceeds in 5 % and in 1 % of the samples that really are Gamma."""

LEVELS = (0.05, 0.01)


def critical(shape: float, level: float = 0.01) -> float:
    """The critical value, interpolated in log shape; flat beyond the table's ends."""
    place = LEVELS.index(level)
    shapes = sorted(CRITICAL)
    return float(np.interp(math.log(shape), np.log(shapes), [CRITICAL[one][place] for one in shapes]))


def anderson_darling(values: Floats, gamma: Gamma) -> float:
    """A² of positive `values` against `gamma`: large where they part, above all in the tails."""
    ordered = np.sort(values)
    n = ordered.size
    above = np.clip(gamma.survival(ordered), 1e-300, 1.0)
    below = np.clip(1.0 - above, 1e-300, 1.0)
    weights = 2.0 * np.arange(1, n + 1) - 1.0
    return float(-n - (weights * (np.log(below) + np.log(above[::-1]))).sum() / n)


def heavy(values: Floats, gamma: Gamma) -> bool:
    """Whether the sample's own upper tail is longer than the fit's: its largest 2 % exceed the fit's 98 % quantile by
    half on average. Names the kind of misfit; the test decides that there is one."""
    top = np.sort(values)[-max(3, values.size // 50) :]
    return bool(top.mean() > 1.5 * gamma.quantile(0.98))
