"""Has the stream become worse than was promised? An e-detector on checked hits.

Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", NEJSDS 2024, in its
CUSUM form: for a few rates r above ε, M ← max(M, 1) · (likelihood of r ÷ likelihood of ε). While each check is wrong
with conditional probability at most ε, whatever the order, the mean number of checks to a false alarm is at least
`run_length`: M is bounded by a sum of e-processes, one begun at each check, so E[M at the alarm] ≤ E[checks to it].
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

WORSE = ((2.0, 0.2), (5.0, 0.3), (30.0, 0.5))
"""(rate ÷ ε, weight): slow, clear and sudden drift."""
WORST_RATE = 0.9
RUN_LENGTH = 10_000.0


class DriftDetector:
    """Raises when checks of hits are wrong more often than `rate`."""

    __slots__ = ("_limit", "_right", "_weights", "_wrong", "logs")

    def __init__(self, rate: float, run_length: float = RUN_LENGTH) -> None:
        rates = [min(times * rate, WORST_RATE) for times, _ in WORSE]
        self._right = [log((1 - worse) / (1 - rate)) for worse in rates]
        self._wrong = [log(worse / rate) for worse in rates]
        self._weights = [weight for _, weight in WORSE]
        self._limit = run_length
        self.reset()

    def reset(self) -> None:
        """Forget all."""
        self.logs = [0.0] * len(WORSE)
        """Log of each statistic, never below 0."""

    def resume(self, logs: Sequence[float]) -> None:
        """Go on from earlier statistics; raises `ValueError` for what can't be."""
        if len(logs) != len(WORSE) or not all(0 <= value < 700 for value in logs):
            raise ValueError("not the statistics of such a detector")
        self.logs = list(logs)

    def observe(self, wrong: bool) -> bool:
        """Take one check; True = alarm."""
        steps = self._wrong if wrong else self._right
        self.logs = [max(0.0, value + step) for value, step in zip(self.logs, steps, strict=True)]
        return wrong and self.statistic >= self._limit

    @property
    def statistic(self) -> float:
        """The weighted sum, to be held against the run length."""
        return sum(weight * exp(min(value, 600.0)) for weight, value in zip(self._weights, self.logs, strict=True))

    @property
    def quiet(self) -> bool:
        """Whether nothing speaks for a sudden change."""
        return self.logs[-1] <= 0.0
