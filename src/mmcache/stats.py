"""Exact counters of what the cache did and saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mmcache.forks import Lock
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


class Tally:
    """Counters behind one short lock; never taken by `peek`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.miss_reasons: Counter[str] = Counter()
        self.lower_hits: Counter[str] = Counter()
        self.modality: dict[str, Counter[str]] = {}
        self.computes = self.checked = self.differed = 0
        self.compute_seconds = self.saved_seconds = 0.0

    def hit(self, tier: str, modality: str | None, saved: float) -> None:
        """One lookup was answered; memory counts its own hits."""
        with self._lock:
            if tier != "memory":
                self.lower_hits[tier] += 1
            self.saved_seconds += saved
            if modality is not None:
                self.modality.setdefault(modality, Counter())["hits"] += 1

    def miss(self, reason: MissReason, modality: str | None) -> None:
        """One lookup was not answered."""
        with self._lock:
            self.miss_reasons[reason.value] += 1
            if modality is not None:
                self.modality.setdefault(modality, Counter())["misses"] += 1

    def computed(self, count: int, seconds: float) -> None:
        """The model ran over `count` inputs."""
        with self._lock:
            self.computes += count
            self.compute_seconds += seconds

    def compared(self, equal: bool) -> None:
        """A hit was recomputed and compared."""
        with self._lock:
            self.checked += 1
            self.differed += not equal

    def snapshot(self, memory_hits: int, tiers: dict[str, TierStats]) -> CacheStats:
        """All counters now."""
        with self._lock:
            by_tier = {"memory": memory_hits, **self.lower_hits}
            return CacheStats(
                hits=sum(by_tier.values()),
                misses=self.miss_reasons.total(),
                computes=self.computes,
                compute_seconds=self.compute_seconds,
                saved_seconds=self.saved_seconds,
                miss_reasons=dict(self.miss_reasons),
                hits_by_tier=by_tier,
                by_modality={name: dict(counts) for name, counts in self.modality.items()},
                tiers=tiers,
                checked=self.checked,
                differed=self.differed,
            )
