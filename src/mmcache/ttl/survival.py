"""A lifetime learned from when blocks are used again, and from what computing them takes."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.ttl.cohort import Cohort, Seen
from mmcache.ttl.curve import Curve, believe
from mmcache.ttl.gamma import Gamma, Sums, digamma
from mmcache.ttl.goodness import LEAST
from mmcache.ttl.pace import Paces, fair_share
from mmcache.ttl.spread import share_of

GAPS, COSTS = 512, 256
"""Gaps and recompute times remembered, a modality: about 120 kB with their keys."""
MOST_MODALITIES, MOST_SCOPES = 16, 1024
"""Beyond them, modalities share one curve, and the scope seen first is forgotten."""
PACES = 8192
"""Blocks whose own uses are counted: about 2 MB."""
REFIT_AFTER, REFIT_SECONDS = 32, 0.5
"""A curve is fitted again (1–3 ms) once so many gaps ended, and at most so often."""
ECHO = 2.0
"""Uses within so many recompute times of a store are one use with it."""
GAP_PRIOR = Gamma(1.0, 60.0)
"""Before anything is known: exponential gaps of a minute."""
COST_KEEP = 1.0 - 1.0 / 500.0
"""Recompute times are forgotten over 500 computations."""
LEAST_COST = 1e-9
"""Seconds; a recompute time below is none, as is one that is not a finite number."""
COST_SURE = 0.99
"""A block's own recompute time counts up to this quantile of its modality: one slow run is no reason to hold longer."""


@dataclass
class _Costs:
    """Recompute times of one modality: sums with forgetting, and a sample to test the fit on."""

    sums: Sums
    sample: list[float]
    curve: Curve
    noted: int = 0
    median: float = 0.0
    most: float = math.inf
    """The `COST_SURE` quantile."""

    def note(self, seconds: float, place: int) -> None:
        self.sums = self.sums.forgetting(seconds, COST_KEEP)
        self.noted += 1
        if len(self.sample) < COSTS:
            self.sample.append(seconds)
        else:
            self.sample[place % COSTS] = seconds


@dataclass
class _Modality:
    gaps: Cohort
    costs: _Costs
    curve: Curve
    reuse: float
    """The quantile of `curve` that lifetimes are taken from."""
    fitted_at: float = -math.inf
    fitted_ended: int = 0
    fitted_costs: int = 0
    expired: int = 0
    """Blocks that left because their time was up."""


class SurvivalTTL:
    """Hold a block until only 1 − `quantile` of the reuses that still come within `max_seconds` are yet to come.

    What it optimises: a longer lifetime buys the reuses that it catches, and is paid in freshness: nobody tells when
    the source of a value changes, and the age of what is served grows with it. Past the `quantile` of the gaps between
    uses (S(t) = P(gap > t), one curve a modality) almost nothing is left to catch. It knows neither the rate of change
    nor the price of a stale value; where those are known, a fixed lifetime may do better.

    * Gaps are Gamma(k, θ), fitted by maximum likelihood to a fair sample (`cohort`) in which gaps that have not ended
      count as what they are, right-censored (EM). Anderson–Darling with bootstrapped critical values (`goodness`) tests
      the fit; rejected, or where more than 2 % of blocks never come back, the Kaplan–Meier curve is used instead.
    * Below 30 gaps, the missing ones are borrowed: the mean of all modalities, or of `GAP_PRIOR`.
    * `by_key`: a block that is used more often than its modality lives shorter, one used less often longer, so that all
      buy hits at the same price in stale answers (`pace`). A block that was never stored before gets its modality's.
    * Never below `floor_recomputes` times what a recompute of the block takes (its own time, up to the 99 % quantile of
      its modality's, by the same kind of fit): so a block in steady use spends at most 1/floor_recomputes of the time
      being recomputed. Never above `max_seconds`.
    * Shortened by up to the share `jitter`, drawn from the key, not from chance. Of blocks stored together, one part in
      floor_recomputes · jitter (an eighth by default) ends within one recompute, on average, unless the cap binds.

    Uses may arrive late or get lost: gaps then look longer, by at most the time between two maintenance passes. Uses
    within twice the recompute time of a store count as one with it. Memory is bounded; equal calls give equal answers;
    what was learned ends with the process.
    """

    def __init__(
        self,
        quantile: float = 0.99,
        floor_recomputes: float = 32.0,
        max_seconds: float = 3600.0,
        jitter: float = 0.25,
        memory_seconds: float = 900.0,
        significance: float = 0.01,
        by_key: bool = True,
        seed: int = 0,
    ) -> None:
        """memory_seconds: over which what was learned is forgotten. significance: 0.05 or 0.01, of the test of fit.

        Raises `SettingsError` for what is out of bounds.
        """
        if not 0.0 < quantile < 1.0:
            raise SettingsError(f"quantile is a share between 0 and 1, such as 0.99, not {quantile}")
        for name, value in (("max_seconds", max_seconds), ("memory_seconds", memory_seconds)):
            if not (math.isfinite(value) and value > 0.0):
                raise SettingsError(f"{name} is a finite number of seconds above 0, not {value}")
        if not (math.isfinite(floor_recomputes) and floor_recomputes >= 0.0):
            raise SettingsError(f"floor_recomputes is a finite number >= 0, not {floor_recomputes}")
        if not 0.0 <= jitter < 1.0:
            raise SettingsError(f"jitter is a share from 0 to below 1, not {jitter}")
        if significance not in (0.05, 0.01):
            raise SettingsError(f"critical values are known for a significance of 0.05 and 0.01, not {significance}")
        self.quantile, self.floor_recomputes, self.max_seconds = quantile, floor_recomputes, max_seconds
        self.jitter, self.memory_seconds, self.seed = jitter, memory_seconds, seed
        self.significance, self.by_key = significance, by_key
        self._paces = Paces(PACES)
        self._random = random.Random(seed)
        self._modalities: dict[str, _Modality] = {}
        self._scopes: dict[bytes, str] = {}

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """See `Lifetime.deadline`. Storing counts as a use: somebody asked."""
        name = self._note_scope(key, facts.modality)
        modality = self._modality(name)
        cost = _told(facts.cost)
        if cost:
            modality.costs.note(cost, self._random.getrandbits(16))
        modality.gaps.use(key, now, ECHO * cost)
        self._refit(modality, now)
        uses, seconds = self._paces.store(key, now) if self.by_key else (0.0, 0.0)
        seconds = self._seconds(modality, facts, uses, seconds)
        return now + seconds * (1.0 - self.jitter * share_of(key))

    def used(self, key: Key, now: float) -> None:
        """See `Lifetime.used`."""
        if (name := self._scopes.get(key.scope)) is not None:
            self._modality(name).gaps.use(key, now)
            if self.by_key:
                self._paces.use(key)

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """See `Lifetime.ended`. An ended block's gap stays open: it may still come back, and that it was gone says
        nothing about when. Closing it here would make the lifetime its own evidence."""
        if stale and (name := self._scopes.get(key.scope)) is not None:
            self._modality(name).expired += 1

    def recompute_seconds(self, modality: str, share: float = 0.5) -> float:
        """The `share` quantile of the recompute time of a modality; 0 where none is known."""
        found = self._modalities.get(modality)
        return found.costs.curve.quantile(share) if found is not None and found.costs.noted else 0.0

    def alive(self, modality: str, seconds: float) -> float:
        """P(alive): the share of gaps between uses of a modality that last longer than `seconds`."""
        found = self._modalities.get(modality)
        return (found.curve if found is not None else Curve(GAP_PRIOR, "prior", 0.0)).survival(seconds)

    def explain(self, modality: str) -> Mapping[str, float | str]:
        """The parts of the lifetime that a new block of `modality` would get now, before jitter; times in seconds.

        `cap` and `floor` bound `reuse`, the quantile of the curve. `verdict`: see `curve.Verdict`.
        """
        found = self._modalities.get(modality) or self._new(modality)
        curve, costs = found.curve, found.costs.curve
        facts = Facts(0, 0.0, modality)
        return {
            "ttl": self._seconds(found, facts),
            "reuse": found.reuse,
            "floor": self.floor_recomputes * self._recompute(found, facts),
            "cap": self.max_seconds,
            "jitter": self.jitter,
            "verdict": curve.verdict,
            "k": curve.gamma.shape,
            "theta": curve.gamma.scale,
            "gaps": curve.n,
            "open_gaps": float(curve.open),
            "a2": curve.statistic,
            "a2_critical": curve.bound,
            "recompute_verdict": costs.verdict,
            "recompute_k": costs.gamma.shape,
            "recompute_theta": costs.gamma.scale,
            "recomputes": float(found.costs.noted),
            "expired": float(found.expired),
        }

    def _seconds(self, modality: _Modality, facts: Facts, uses: float = 0.0, seconds: float = 0.0) -> float:
        floor = self.floor_recomputes * self._recompute(modality, facts)
        reuse = fair_share(modality.reuse, modality.curve.gamma.mean, uses, seconds)
        return min(max(reuse, floor), self.max_seconds)

    @staticmethod
    def _recompute(modality: _Modality, facts: Facts) -> float:
        """Seconds that computing the block again will take, as far as believed."""
        cost = _told(facts.cost)
        if modality.costs.noted < LEAST:
            return cost or modality.costs.median
        return min(cost, modality.costs.most) if cost else modality.costs.median

    def _note_scope(self, key: Key, modality: str) -> str:
        """Which curve a key's uses belong to: uses come without facts."""
        known = self._modalities
        name = modality if modality in known or len(known) < MOST_MODALITIES else next(iter(known))
        scope = key.scope
        if scope not in self._scopes and len(self._scopes) >= MOST_SCOPES:
            del self._scopes[next(iter(self._scopes))]
        self._scopes[scope] = name
        return name

    def _modality(self, name: str) -> _Modality:
        found = self._modalities.get(name)
        if found is None:
            found = self._modalities[name] = self._new(name)
        return found

    def _new(self, name: str) -> _Modality:
        curve = believe(_NOTHING, Sums(), GAP_PRIOR, self.significance, prior_sums=self._borrowed(LEAST))
        costs = _Costs(Sums(), [], Curve(Gamma(1.0, 1.0), "prior", 0.0))
        return _Modality(
            Cohort(GAPS, self.memory_seconds, self.seed), costs, curve, curve.quantile(self.quantile, self.max_seconds)
        )

    def _borrowed(self, missing: float) -> Sums:
        """`missing` values, of the mean of all modalities' gaps, themselves filled up to 30 from the built-in prior."""
        total = Sums()
        for modality in self._modalities.values():
            total = total + modality.gaps.sums()
        if total.n < LEAST:
            total = total + _sums_of(GAP_PRIOR) * (LEAST - total.n)
        return total * (missing / total.n)

    def _refit(self, modality: _Modality, now: float) -> None:
        new = modality.gaps.ended - modality.fitted_ended
        due = min(REFIT_AFTER, max(1, modality.fitted_ended // 2))
        if new >= due and now - modality.fitted_at >= REFIT_SECONDS:
            modality.fitted_at, modality.fitted_ended = now, modality.gaps.ended
            seen = modality.gaps.look(now)
            sums = Sums.of(seen.whole)
            borrowed = self._borrowed(LEAST - sums.n) if sums.n < LEAST else None
            modality.curve = believe(seen, sums, GAP_PRIOR, self.significance, modality.curve.gamma, borrowed)
            modality.reuse = modality.curve.quantile(self.quantile, self.max_seconds)
        costs = modality.costs
        if costs.noted - modality.fitted_costs >= min(REFIT_AFTER, max(1, modality.fitted_costs)):
            modality.fitted_costs = costs.noted
            whole = np.array(costs.sample, np.float64)
            costs.curve = believe(Seen(whole, np.zeros(0), whole, 1.0), costs.sums, GAP_PRIOR, self.significance)
            costs.median, costs.most = costs.curve.quantile(0.5), costs.curve.quantile(COST_SURE)


_NOTHING = Seen(np.zeros(0), np.zeros(0), np.zeros(0), 0.0)


def _told(cost: float) -> float:
    """0 where it makes no sense."""
    return cost if LEAST_COST <= cost < math.inf else 0.0


def _sums_of(gamma: Gamma) -> Sums:
    """What one value of `gamma` adds to sums, on average."""
    return Sums(1.0, gamma.mean, digamma(gamma.shape) + math.log(gamma.scale))
