"""Who says when load is a burst: the product's own detector, and five rules to hold it to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import log, sqrt
from typing import Protocol

from mmcache.lab.bursts_wide import Wide
from mmcache.scale.bursts import BurstDetector
from mmcache.scale.spec import BurstSpec

WINDOW = 60.0
HOUR = 3600.0
SPEC = BurstSpec()


class Rule(Protocol):
    """`at` rises in equal steps."""

    def observe(self, at: float, rate: float) -> bool:
        """Whether this is a burst now."""


class Ours:
    """The product's own."""

    def __init__(self) -> None:
        self.detector = BurstDetector(SPEC)

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        return self.detector.observe(at, rate).burst


class _Sliding:
    """The mean of the last so many steps."""

    def __init__(self, steps: int) -> None:
        self._kept: deque[float] = deque(maxlen=steps)
        self._sum = 0.0

    def add(self, rate: float) -> float:
        if len(self._kept) == self._kept.maxlen:
            self._sum -= self._kept[0]
        self._kept.append(rate)
        self._sum += rate
        return max(0.0, self._sum) / len(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Plain:
    """As systems are described in a sentence: the mean of 60 s above 1.5 times the mean of the last hour."""

    def __init__(self, step: float) -> None:
        self._short, self._long = _Sliding(int(WINDOW / step)), _Sliding(int(HOUR / step))
        self._least = int(5 * WINDOW / step)

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        short, long = self._short.add(rate), self._long.add(rate)
        return len(self._long) > self._least and short > SPEC.factor * long


class Ewma:
    """A control chart (Roberts, Technometrics 1, 1959): the mean of 60 s is above `mean + 3 deviations`, both of them
    weighted exponentially over an hour, a step of which counts once a minute."""

    def __init__(self, step: float) -> None:
        self._short, self._steps = _Sliding(int(WINDOW / step)), int(WINDOW / step)
        self._seen = 0
        self._mean = self._variance = 0.0

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        short = self._short.add(rate)
        self._seen += 1
        minutes = self._seen // self._steps
        high = minutes > 5 and short > self._mean + 3 * sqrt(self._variance)
        if not self._seen % self._steps:
            weight = max(WINDOW / HOUR, 1 / minutes)
            off = short - self._mean
            self._mean += weight * off
            self._variance = (1 - weight) * (self._variance + weight * off * off) if minutes > 1 else 0.0
        return high


class Cusum:
    """Page's cumulative sum (Biometrika 41, 1954) for a Poisson process of twice the rate, as log-likelihood ratio;
    begins above ln(1e6), ends at 0, where it starts over. The usual rate is weighted exponentially over an hour."""

    def __init__(self, step: float) -> None:
        self._step, self._seen = step, 0
        self._mean = self._sum = 0.0
        self._on = False

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        self._seen += 1
        if self._seen * self._step > 5 * WINDOW:
            gain = (rate * log(2) - self._mean) * self._step
            self._sum = min(max(0.0, self._sum + gain), 2 * log(1e6))
        self._mean += max(self._step / HOUR, 1 / self._seen) * (rate - self._mean)
        self._on = self._sum > log(1e6) or (self._on and self._sum > 0)
        return self._on


class Fixed:
    """Above 1.5 times the mean of what was seen first (`learns` seconds), as one sets a threshold once."""

    def __init__(self, step: float, learns: float) -> None:
        self._short, self._first, self._sum = _Sliding(int(WINDOW / step)), int(learns / step), 0.0
        self._seen = 0

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        short = self._short.add(rate)
        self._seen += 1
        if self._seen <= self._first:
            self._sum += rate
            return False
        return short > SPEC.factor * self._sum / self._first


OURS = "ours"


def rules(step: float, learns: float) -> Mapping[str, Callable[[], Rule]]:
    """By name, ours first."""
    return {
        OURS: Ours,
        "wide": lambda: Wide(step),
        "plain": lambda: Plain(step),
        "ewma": lambda: Ewma(step),
        "cusum": lambda: Cusum(step),
        "fixed": lambda: Fixed(step, learns),
    }


WORDS = {
    OURS: "ours",
    "wide": "noise by 1, 3 and 5 windows",
    "plain": "60 s > 1.5 × mean of the last hour",
    "ewma": "EWMA chart, 3 deviations",
    "cusum": "CUSUM for twice the rate",
    "fixed": "60 s > 1.5 × mean of the beginning",
}
