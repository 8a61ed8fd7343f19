"""Survival curves: Gamma where that fits, else as measured (Kaplan and Meier)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mmcache.ttl.cohort import Seen
from mmcache.ttl.gamma import Floats, Gamma, Sums
from mmcache.ttl.goodness import LEAST, anderson_darling, critical, heavy

LEAST_RETURNED = 0.98
"""Where fewer of the gaps ended although they had the time to, some blocks never come back: that is no Gamma."""

LEAST_RETURNED_SOON = 0.75
"""The same before there are 30 gaps old enough for that (see `Seen.returned_soon`)."""

Verdict = Literal["prior", "young", "gamma", "heavy-tail", "not-gamma", "one-offs"]
"""`prior`: below 30 values, shrunk to what other modalities show. `young`: too early to test, Gamma for now. `gamma`:
not rejected. The others use the measured curve: `heavy-tail`, `not-gamma`: rejected; `one-offs`: many never return."""

MEASURED: tuple[Verdict, ...] = ("heavy-tail", "not-gamma", "one-offs")

_EM_STEPS = 8
"""A fit starts from the last one, so few are enough."""


@dataclass(frozen=True)
class Measured:
    """A Kaplan–Meier curve: survival after each of `times` (ascending)."""

    times: Floats
    left: Floats

    @staticmethod
    def of(whole: Floats, open: Floats) -> Measured:
        """The product-limit estimate. Unbiased where being open says nothing about the gap, as in a `Cohort`."""
        times, counts = np.unique(whole, return_counts=True)
        at_risk = whole.size - np.searchsorted(np.sort(whole), times, "left")
        at_risk = at_risk + open.size - np.searchsorted(np.sort(open), times, "left")
        return Measured(times, np.asarray(np.cumprod(1.0 - counts / at_risk), np.float64))

    def survival(self, x: float) -> float:
        """P(gap > x); beyond the last ended gap it is not known to fall further."""
        place = int(np.searchsorted(self.times, x, "right"))
        return float(self.left[place - 1]) if place else 1.0

    def quantile(self, share: float) -> float:
        """The first time by which at least `share` of all gaps have ended; the last time where fewer ever do."""
        place = int(np.searchsorted(1.0 - self.left, share - 1e-12, "left"))
        return float(self.times[min(place, self.times.size - 1)]) if self.times.size else math.inf


@dataclass(frozen=True)
class Curve:
    """P(value > x) as currently believed."""

    gamma: Gamma
    verdict: Verdict
    n: float
    """Values seen whole."""
    open: int = 0
    """Values only known to exceed something."""
    statistic: float = 0.0
    """A² of the test; 0 where none was made."""
    bound: float = 0.0
    """What it must not exceed."""
    measured: Measured = field(default_factory=lambda: Measured(np.zeros(0), np.zeros(0)))

    def survival(self, x: float) -> float:
        """P(value > x)."""
        return self.measured.survival(x) if self.verdict in MEASURED else float(self.gamma.survival(x)[0])

    def quantile(self, share: float, within: float = math.inf) -> float:
        """By when `share` of those have come that come `within` seconds at all."""
        come = 1.0 - self.survival(within) if math.isfinite(within) else 1.0
        if self.verdict in MEASURED:
            if not math.isfinite(within):
                come = 1.0 - float(self.measured.left[-1])
            return min(self.measured.quantile(share * come), within)
        return min(self.gamma.quantile(share * come), within)


def believe(
    seen: Seen, sums: Sums, prior: Gamma, level: float, before: Gamma | None = None, prior_sums: Sums | None = None
) -> Curve:
    """The curve that `seen` supports.

    sums: those of the gaps that ended. prior_sums: as many borrowed values as are missing to 30 (see `survival`).
    before: the last fit, to start from. Without a single value, `prior`.
    """
    n, open = sums.n, seen.open
    all_sums = sums + (prior_sums or Sums())
    if all_sums.n <= 0.0:
        return Curve(prior, "prior", 0.0, open.size)
    verdict: Verdict = "prior" if n < LEAST else "young"
    statistic = bound = 0.0
    if n >= LEAST and seen.mature.size >= LEAST:
        fit = Gamma.fit(Sums.of(seen.mature))
        statistic, bound = anderson_darling(seen.mature, fit), critical(fit.shape, level)
        if seen.returned < LEAST_RETURNED:
            verdict = "one-offs"
        elif statistic > bound:
            verdict = "heavy-tail" if heavy(seen.mature, fit) else "not-gamma"
        else:
            verdict = "gamma"
    elif n >= LEAST and seen.returned_soon is not None and seen.returned_soon < LEAST_RETURNED_SOON:
        verdict = "one-offs"
    if verdict in MEASURED:
        return Curve(Gamma.fit(all_sums), verdict, n, open.size, statistic, bound, Measured.of(seen.whole, open))
    return Curve(_with_open(all_sums, open, verdict, before), verdict, n, open.size, statistic, bound)


def _with_open(sums: Sums, open: Floats, verdict: Verdict, before: Gamma | None) -> Gamma:
    """Before the test has spoken, open gaps count no more than those that ended: a flood of blocks that are new, or
    never come back, would otherwise drive the mean to infinity. The bias is to the short side, and passes."""
    if verdict != "gamma" and open.size > sums.n:
        open = np.sort(open)[:: math.ceil(open.size / max(1.0, sums.n))]
    return Gamma.fit_censored(sums, open, before, _EM_STEPS)
