"""Intervals for error rates, for reports. Pure Python.

`clopper_pearson` holds for a number of outcomes fixed beforehand; `confidence_sequence` holds at all times at once, so
it may be looked at whenever one likes; `ServedBound` bounds the wrong rate among *hits* from checks drawn at changing
shares. All for outcomes that are 1 = wrong, 0 = right.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, log1p

_STEPS = 80


def clopper_pearson(wrong: int, seen: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval for a rate (Clopper and Pearson 1934). (0, 1) where nothing was seen.

    Raises `ValueError` unless 0 ≤ wrong ≤ seen.
    """
    if not 0 <= wrong <= seen:
        raise ValueError(f"{wrong} wrong of {seen} seen")
    tail = (1 - confidence) / 2
    low = 0.0 if wrong == 0 else _root(lambda rate: _binomial_above(wrong, seen, rate) - tail)
    high = 1.0 if wrong == seen else _root(lambda rate: tail - (1 - _binomial_above(wrong + 1, seen, rate)))
    return low, high


def confidence_sequence(wrong: int, seen: int, alpha: float = 0.05) -> tuple[float, float]:
    """An interval for the running mean of P(wrong) that holds at all times at once with probability 1 − α.

    From the Beta(½, ½) mixture of likelihood ratios (Robbins 1970): the rates m at which
    B(wrong + ½, right + ½) / B(½, ½) < m^wrong (1 − m)^right / α. Exact for independent outcomes of one rate. Raises
    `ValueError` unless 0 ≤ wrong ≤ seen.
    """
    if not 0 <= wrong <= seen:
        raise ValueError(f"{wrong} wrong of {seen} seen")
    if not seen:
        return 0.0, 1.0
    right = seen - wrong
    evidence = _log_beta(wrong + 0.5, right + 0.5) - _log_beta(0.5, 0.5) + log(alpha)

    def excess(rate: float) -> float:
        return evidence - (wrong * log(rate) if wrong else 0.0) - (right * log1p(-rate) if right else 0.0)

    mean = wrong / seen
    low = 0.0 if wrong == 0 else _root(lambda rate: -excess(rate), 1e-12, mean)
    high = 1.0 if right == 0 else _root(excess, max(mean, 1e-12), 1 - 1e-12)
    return low, high


class ServedBound:
    """An upper bound on the mean P(wrong) of all hits so far, anytime-valid, for any order of the stream: for each rate
    fixed beforehand, the mean is seldom ever there or above while the bound is below.

    A bet against "the mean is at least m": each hit multiplies wealth by 1 + λ (m − Y), where Y = 1/c for one that was
    checked with chance c and was wrong, else 0, so that E[Y] = P(wrong). Bets λ are constant and below the base share,
    so the argument of `betting` holds. The bound is the least m at which the wealth is 1/α. O(1) a hit.
    """

    BETS = (0.9, 0.4, 0.1)
    SHARES = 64

    __slots__ = ("base", "caught", "hits")

    def __init__(self, base: float) -> None:
        self.base = base
        self.hits = 0
        """Served or checked."""
        self.caught = [0] * self.SHARES
        """Wrong checks, by check share: rounded down, never below the base."""

    def hit(self, share: float = 1.0, wrong: bool = False) -> None:
        """Count a hit; `wrong` only for one that was drawn for a check with chance `share`."""
        self.hits += 1
        if wrong:
            self.caught[min(int((share - self.base) / (1 - self.base + 1e-12) * self.SHARES), self.SHARES - 1)] += 1

    def upper(self, alpha: float = 0.05) -> float:
        """The bound, at confidence 1 − `alpha`; 1 where nothing is known."""
        if not self.hits:
            return 1.0
        shares = [self.base + (1 - self.base) * place / self.SHARES for place in range(self.SHARES)]
        wrong = sum(self.caught)

        def excess(rate: float) -> float:
            logs = []
            for bet in (share * self.base for share in self.BETS):
                wealth = (self.hits - wrong) * log1p(bet * rate)
                for share, count in zip(shares, self.caught, strict=True):
                    if count:
                        wealth += count * log(max(1 + bet * (rate - 1 / share), 1e-300))
                logs.append(wealth - log(len(self.BETS)))
            most = max(logs)
            return most + log(sum(exp(value - most) for value in logs)) + log(alpha)

        return 1.0 if excess(1.0) <= 0 else _root(excess, 0.0, 1.0)


def _root(rising: Callable[[float], float], low: float = 0.0, high: float = 1.0) -> float:
    """Where a function that rises from below to above 0 crosses it."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _binomial_above(least: int, seen: int, rate: float) -> float:
    """P(at least `least` of `seen`) at `rate`: the incomplete beta function I_rate(least, seen − least + 1)."""
    if rate <= 0 or least > seen:
        return 0.0
    if rate >= 1 or least <= 0:
        return 1.0
    a, b = float(least), float(seen - least + 1)
    front = exp(a * log(rate) + b * log1p(-rate) - _log_beta(a, b))
    if rate < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, rate) / a
    return 1 - front * _fraction(b, a, 1 - rate) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 1000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / _away(1 + step * d, tiny), _away(1 + step / c, tiny)
            value *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return value


def _away(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
