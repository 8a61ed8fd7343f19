"""Exact counters of what the cache did and saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from mmcache.attribution import current
from mmcache.ledger import Ledger
from mmcache.model.event import MissReason
from mmcache.tiers.base import TierStats


@dataclass(frozen=True)
class CacheStats:
    """A snapshot. `hits + misses` are all lookups; `miss_reasons` sums to `misses`."""

    hits: int
    misses: int
    computes: int
    """Calls of the model (a batch counts its inputs)."""
    compute_seconds: float
    saved_seconds: float
    """Compute time of the blocks that lookups found (hits by `peek` and `get` from memory are not in it)."""
    miss_reasons: dict[str, int]
    hits_by_tier: dict[str, int]
    by_modality: dict[str, dict[str, int]]
    """modality → {hits, misses}; of lookups that knew their modality."""
    tiers: dict[str, TierStats]
    checked: int
    """Hits that were recomputed to compare (shadow mode or sampled verification)."""
    differed: int
    """… of which the recomputed value was not the stored one."""

    @property
    def hit_ratio(self) -> float:
        """Hits per lookup, 0…1."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


class Asked(NamedTuple):
    """Labels of lookups; "" = not known, or not so of this outcome."""

    outcome: str
    """`hit`, `near`, `stale` or `miss`."""
    tier: str
    reason: str
    modality: str
    strategy: str
    tenant: str
    route: str
    client_region: str


class Tally:
    """Counters of the slow path, by labels; never touched by `peek`. Memory counts its own hits."""

    def __init__(self) -> None:
        free = [Asked._fields.index(name) for name in ("modality", "tenant", "route", "client_region")]
        self.lookups = Ledger(free)
        """By `Asked`; the seconds and bytes are what hits saved."""
        self.computes = Ledger([0])
        """By modality: inputs and seconds."""
        self.checks = Ledger()
        """By `same` and `differed`."""

    def hit(
        self, tier: str, modality: str | None, saved: float, *, tenant: str = "", strategy: str = "exact", size: int = 0
    ) -> None:
        """One lookup was answered. saved: seconds of compute; size: bytes of the frame.

        strategy: `exact`, `near`, `stale`, `region`, `row`.
        """
        outcome = strategy if strategy in ("near", "stale") else "hit"
        by = current()
        labels = (outcome, tier, "", modality or "", strategy, tenant, by.route, by.region)
        self.lookups.add(labels, 1, saved, size)

    def miss(self, reason: MissReason, modality: str | None, *, tenant: str = "", strategy: str = "exact") -> None:
        """One lookup was not answered."""
        by = current()
        self.lookups.add(("miss", "", reason.value, modality or "", strategy, tenant, by.route, by.region))

    def computed(self, count: int, seconds: float, modality: str | None = None) -> None:
        """The model ran over `count` inputs, and took `seconds` for them together."""
        self.computes.add((modality or "",), count, seconds)

    def compared(self, equal: bool) -> None:
        """A hit was recomputed and compared."""
        self.checks.add(("same" if equal else "differed",))

    def snapshot(self, memory_hits: int, tiers: dict[str, TierStats]) -> CacheStats:
        """All counters now."""
        by_tier, reasons, saved = Counter({"memory": memory_hits}), Counter[str](), 0.0
        by_modality: dict[str, Counter[str]] = {}
        for labels, (count, seconds, _) in self.lookups.all().items():
            asked = Asked(*labels)
            missed = asked.outcome == "miss"
            if missed:
                reasons[asked.reason] += count
            elif asked.tier != "memory":
                by_tier[asked.tier] += count
            saved += seconds
            if asked.modality:
                by_modality.setdefault(asked.modality, Counter())["misses" if missed else "hits"] += count
        computes, checks = self.computes.all().values(), self.checks.all()
        checked = {result: checks.get((result,), (0, 0.0, 0))[0] for result in ("same", "differed")}
        return CacheStats(
            hits=by_tier.total(),
            misses=reasons.total(),
            computes=sum(count for count, _, _ in computes),
            compute_seconds=sum(seconds for _, seconds, _ in computes),
            saved_seconds=saved,
            miss_reasons=dict(reasons),
            hits_by_tier=dict(by_tier),
            by_modality={name: dict(counts) for name, counts in by_modality.items()},
            tiers=tiers,
            checked=sum(checked.values()),
            differed=checked["differed"],
        )
