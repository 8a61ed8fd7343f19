"""QoS: who may store while space is short, and who computes next. Pure; time is an argument.

    score     = weight · (1 − min(load, 0.95))             critical 10, normal 3, batch 0.5
    threshold = 0.5 · (1 − max(free, 0.05))                admitted when score >= threshold

Load and free space are those of the resource that is asked for, both shares between 0 and 1:

* **pool** (asked by `judge`, when a block is to be stored): load is what the tenant stored within the last 10 s or so,
  free is what it may use without taking from others: unused bytes and those that it holds; both as shares of the memory
  tier's limit. So whoever is held back may still turn its own space over once in a window.
* **slots** (asked by `choose`, when a computation is to start): load is the tenant's running computations as a share
  of all slots, smoothed over 10 s; free is the share of slots that are idle.

0.5 is what a critical tenant scores under full load, so a critical tenant always passes, and a batch tenant passes
exactly while load <= free: its part of a resource shrinks with what is left of it, down to 5 %, which it keeps. The
threshold exists to protect others: it is 0 while no tenant of a higher class has stored or computed for a minute.

Among those that wait to compute, the highest score goes first; of equal scores the higher class. So a fully loaded
critical tenant (10 · 0.05 = 0.5) goes before an idle batch tenant (0.5 · 1 = 0.5).

Starvation is bounded. *Stores*: a refused tenant's load halves every 7 s, so it is refused for 30 s at most, and it
stores at least 5 % of the limit within 10 s. *Slots*: a tenant at the head of its queue may be overtaken by 10 ÷ weight
computations (batch 20, normal 4, critical 1); then it is overdue, and of those that are, the one with the most
overtakings times weight goes first. With T tenants waiting it is overtaken at most
2 · max(10, sum of their weights) ÷ weight + 2 · T times while its class has room (see `choose`).
Batch tenants together run on half of the slots at most (on one if there is but one), so a critical tenant never finds
all of them taken by batch. That half stays empty when nobody else comes: the price of a bound on waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mmcache.admission.base import Admit, Reject, Verdict
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.event import RefuseReason
from mmcache.model.key import Key
from mmcache.settings import CLASS_WEIGHTS, Tenant

MOST_LOAD = 0.95
"""A load counts at most so much: a score never reaches 0."""
LEAST_FREE = 0.05
"""The threshold acts as if at least so much were free: what a loaded tenant of any class keeps."""
HEAVIEST = max(CLASS_WEIGHTS.values())
FULL_THRESHOLD = HEAVIEST * (1 - MOST_LOAD)
"""Threshold where nothing is free: the score of a critical tenant under full load."""
_ADMIT, _REFUSE = Admit(), Reject(RefuseReason.ADMISSION)
_STRANGER = Tenant()
_REMEMBERED = 4096
"""Loads kept; beyond it the faded ones are forgotten."""


def score(weight: float, load: float) -> float:
    """weight · (1 − min(load, 0.95)), rounded so that equal means equal."""
    return round(weight * (1.0 - min(load, MOST_LOAD)), 12)


def threshold(free: float) -> float:
    """What a score must reach where a share `free` (0…1) of the resource is unused."""
    return round(FULL_THRESHOLD * (1.0 - min(1.0, max(free, LEAST_FREE))), 12)


@dataclass(slots=True)
class _Use:
    """Exponentially fading use of a resource."""

    level: float = 0.0
    """Pool: bytes. Slots: share of the slots."""
    running: int = 0
    """Slots: computations now."""
    at: float = 0.0

    def fade(self, now: float, seconds: float, towards: float = 0.0) -> float:
        """Let time pass: the level nears `towards`, which held since the last call. Late news change nothing."""
        if now > self.at:
            self.level = towards + (self.level - towards) * math.exp((self.at - now) / seconds)
            self.at = now
        return self.level


class QoS:
    """See the module's text. `judge` and the methods of `Ranks` share nothing but the tenants' classes and the time of
    their last call, so they may be called by different threads; those of `Ranks` by one at a time."""

    def __init__(
        self,
        tenants: Mapping[str, Tenant] | None = None,
        *,
        batch_share: float = 0.5,
        window_seconds: float = 10.0,
        quiet_seconds: float = 60.0,
    ) -> None:
        """A tenant not in `tenants` is `Tenant()`. `batch_share`: of the slots, for all batch tenants together.

        `window_seconds`: over how long a load fades by a factor e. `quiet_seconds`: how long after its last store or
        computation a class is protected. Raises `SettingsError`.
        """
        if not (0.0 < batch_share <= 1.0 and window_seconds > 0.0 and quiet_seconds >= 0.0):
            raise SettingsError("QoS needs 0 < batch_share <= 1, window_seconds > 0 and quiet_seconds >= 0")
        self.batch_share, self.window_seconds, self.quiet_seconds = batch_share, window_seconds, quiet_seconds
        self._tenants: Mapping[str, Tenant] = {}
        self._limit = 0
        self._free: dict[str, float] = {}
        self._pool: dict[str, _Use] = {}
        self._slots: dict[str, _Use] = {}
        self._batch_running = 0
        self._seen: dict[float, float] = {}
        """Weight → when a tenant of that weight last stored or computed."""
        self.serve(tenants or {})

    # Feedback -------------------------------------------------------------------------------------------------------

    def serve(self, tenants: Mapping[str, Tenant]) -> None:
        """Who is of which class."""
        self._tenants = dict(tenants)

    def space(self, tenant: str, own: int, held: int, limit: int) -> None:
        """See `Watchful.space`. Until this is told, everything is free."""
        if len(self._free) >= _REMEMBERED:
            self._free.clear()
        self._limit, self._free[tenant] = limit, 1.0 - min(1.0, (held - own) / limit) if limit > 0 else 0.0

    # Storing --------------------------------------------------------------------------------------------------------

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        """See `Admission.judge`: `Admit` or `Reject`; what cannot be stored now need not wait, its caller has it."""
        weight = self._tenants.get(facts.tenant, _STRANGER).weight
        self._see(weight, now)
        use = self._use(self._pool, facts.tenant, now)
        level = use.fade(now, self.window_seconds)
        load = min(1.0, level / self._limit) if self._limit > 0 else 0.0
        if score(weight, load) < threshold(self._free.get(facts.tenant, 1.0)) and self._protects(weight, now):
            return _REFUSE
        use.level = min(level + facts.size, float(self._limit)) if self._limit > 0 else level + facts.size
        return _ADMIT

    def pool_load(self, tenant: str, now: float) -> float:
        """Share of the memory limit that a tenant stored lately."""
        level = self._pool.get(tenant, _Use()).fade(now, self.window_seconds)
        return min(1.0, level / self._limit) if self._limit > 0 else 0.0

    # Computing ------------------------------------------------------------------------------------------------------

    def choose(self, waiting: Iterable[tuple[str, int]], free: int, slots: int, now: float) -> str | None:
        """Which tenant computes next; None = nobody may, though `free` of `slots` are idle.

        `waiting`: each waiting tenant once, with how many computations have started before the one at the head of its
        queue since that came there.

        Why the bound holds. Let r = overtakings · weight ÷ 10 of a head, and R = 2 · max(1, sum of weights ÷ 10). While
        r >= R, another tenant u can only be chosen when its own r is at least as large, so two choices of u lie
        10 · R ÷ weight(u) apart or more: of m choices at most T + m · sum(weights) ÷ (10 · R) <= T + m ÷ 2 go to
        others, so m <= 2 · T.
        """
        best: tuple[bool, float, float, float] | None = None
        chosen = None
        limit = threshold(free / slots)
        for tenant, overtaken in waiting:
            known = self._tenants.get(tenant, _STRANGER)
            weight = known.weight
            if known.service == "batch" and self._batch_running >= max(1, int(slots * self.batch_share)):
                continue
            late = overtaken * weight / HEAVIEST
            points = score(weight, self.slot_load(tenant, slots, now))
            if late < 1.0 and points < limit and self._protects(weight, now):
                continue
            rank = (True, late, points, weight) if late >= 1.0 else (False, points, weight, -late)
            if best is None or rank > best:
                best, chosen = rank, tenant
        return chosen

    def began(self, tenant: str, slots: int, now: float) -> None:
        """A computation started on one of `slots`."""
        known = self._tenants.get(tenant, _STRANGER)
        self._see(known.weight, now)
        use = self._use(self._slots, tenant, now)
        use.fade(now, self.window_seconds, use.running / slots)
        use.running += 1
        self._batch_running += known.service == "batch"

    def ended(self, tenant: str, slots: int, now: float) -> None:
        """A computation that `began` is over."""
        known = self._tenants.get(tenant, _STRANGER)
        self._see(known.weight, now)
        use = self._use(self._slots, tenant, now)
        use.fade(now, self.window_seconds, use.running / slots)
        use.running = max(0, use.running - 1)
        self._batch_running = max(0, self._batch_running - (known.service == "batch"))

    def slot_load(self, tenant: str, slots: int, now: float) -> float:
        """The tenant's running computations as a share of all slots, smoothed."""
        use = self._slots.get(tenant)
        return 0.0 if use is None else min(1.0, use.fade(now, self.window_seconds, use.running / slots))

    def reset(self) -> None:
        """Nothing is running: a forked child has none of its parent's computations."""
        self._slots, self._batch_running = {}, 0

    # Inside ---------------------------------------------------------------------------------------------------------

    def _see(self, weight: float, now: float) -> None:
        self._seen[weight] = max(now, self._seen.get(weight, now))

    def _protects(self, weight: float, now: float) -> bool:
        """Whether a higher class was about lately."""
        return any(
            other > weight and now - self._seen.get(other, -math.inf) <= self.quiet_seconds
            for other in CLASS_WEIGHTS.values()
        )

    def _use(self, uses: dict[str, _Use], tenant: str, now: float) -> _Use:
        use = uses.get(tenant)
        if use is None:
            if len(uses) >= _REMEMBERED:
                faded = now - 10 * self.window_seconds
                for name, old in list(uses.items()):
                    if not old.running and old.at < faded:
                        uses.pop(name, None)
            use = uses.setdefault(tenant, _Use(at=now))
        return use
