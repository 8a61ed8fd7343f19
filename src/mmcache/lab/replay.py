"""A trace through one of the product's own policies, as the memory tier would drive it; no payload, no lock, no clock.

What the tier does is in `tiers.memory` and `tiers.room`; a property test holds the two together. As there, uses reach
the policy late: those since the last put, in order, before the next; a put tells the policy first and asks it for
victims then; and where the policy may refuse and yields the new block, nothing is evicted and it is not stored.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache import plugins
from mmcache.lab.table import Progress, silent
from mmcache.lab.traces.trace import Trace
from mmcache.model.key import Key
from mmcache.policies.base import Policy
from mmcache.settings import MemorySettings
from mmcache.ttl.base import Lifetime

Hits = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

RECENCY_RING = MemorySettings().recency_ring
_REPORTED = 50_000
"""Requests between two calls of `progress`."""


@dataclass(frozen=True)
class Replayed:
    """What became of each request."""

    hits: Hits
    """bool [n]."""
    refused: int
    """Blocks that the policy would not have."""
    evicted: int
    expired: int
    """Blocks whose lifetime ended before they were evicted."""
    ages: Floats | None
    """float64 [n]: seconds since what a hit returned was computed, 0 for a miss; None where nothing has a lifetime."""


def policy_named(name: str) -> Policy:
    """A new policy of a registered name. Raises `UnknownPluginError`."""
    made: Policy = plugins.load("policies", name)()
    return made


def replay(
    trace: Trace,
    policy: Policy,
    limit_bytes: int,
    *,
    lifetime: Lifetime | None = None,
    ring: int = RECENCY_RING,
    largest_share: float = 1.0,
    progress: Progress = silent,
) -> Replayed:
    """Every request of `trace` against an empty cache of `limit_bytes`.

    A block larger than `largest_share` of the limit is computed and not stored (`MemorySettings` has a half; rivals
    are not held to that). With a `lifetime`, a block that is over is a miss, and is
    dropped with the next put.
    """
    keys, facts, sizes = trace.keys, trace.facts, trace.sizes.tolist()
    ends_at = _Deadlines(lifetime) if lifetime is not None else None
    held: dict[Key, int] = {}
    used = refused = evicted = 0
    hits = bytearray(len(trace))
    ages = np.zeros(len(trace)) if ends_at is not None else None
    waiting: deque[Key] = deque(maxlen=ring)
    times = trace.times.tolist()
    touch, add, drop, order = policy.touch, policy.add, policy.drop, policy.victims
    most_bytes = limit_bytes * largest_share
    may_refuse = bool(getattr(policy, "refuses", False))
    for place, block in enumerate(trace.ids.tolist()):
        key = keys[block]
        if key in held and (ends_at is None or ends_at.alive(key, times[place])):
            hits[place] = 1
            waiting.append(key)
            if ends_at is not None and ages is not None:
                ages[place] = times[place] - ends_at.born[key]
            continue
        if not place % _REPORTED:
            progress(trace.name, place, len(trace))
        now = times[place]
        for other in waiting:
            touch(other, now)
        if ends_at is not None:
            for other in waiting:
                ends_at.used(other, now)
            for other in ends_at.over(now):
                used -= held.pop(other)
                drop(other)
        waiting.clear()
        size = sizes[block]
        if size > most_bytes:
            continue
        add(key, facts[block], now)
        excess = used + size - limit_bytes
        if excess > 0:
            chosen: list[Key] = []
            for other in order(now):
                if other == key:
                    if may_refuse:
                        break
                    continue
                if other in held:
                    chosen.append(other)
                    excess -= held[other]
                    if excess <= 0:
                        break
            if excess > 0:
                drop(key)
                refused += 1
                continue
            for other in chosen:
                used -= held.pop(other)
                drop(other)
                if ends_at is not None:
                    ends_at.gone(other, now)
            evicted += len(chosen)
        held[key] = size
        used += size
        if ends_at is not None:
            ends_at.begin(key, ends_at.lifetime.deadline(key, facts[block], now), now)
    progress(trace.name, len(trace), len(trace))
    expired = ends_at.expired if ends_at is not None else 0
    return Replayed(np.frombuffer(hits, np.bool_), refused, evicted, expired, ages)


class _Deadlines:
    """When each block that is held ends, and what its lifetime hears of it."""

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        self.born: dict[Key, float] = {}
        self.expired = 0
        self.used = lifetime.used
        self._ends: dict[Key, float] = {}
        self._next: list[tuple[float, Key]] = []

    def begin(self, key: Key, deadline: float | None, now: float) -> None:
        self.born[key] = now
        if deadline is not None:
            self._ends[key] = deadline
            heapq.heappush(self._next, (deadline, key))

    def alive(self, key: Key, now: float) -> bool:
        end = self._ends.get(key)
        return end is None or end > now

    def over(self, now: float) -> list[Key]:
        """The blocks that are over, each once; forgotten."""
        found = []
        while self._next and self._next[0][0] <= now:
            end, key = heapq.heappop(self._next)
            if self._ends.get(key) == end:
                found.append(key)
                self.expired += 1
                self._forget(key, now, stale=True)
        return found

    def gone(self, key: Key, now: float) -> None:
        self._forget(key, now, stale=False)

    def _forget(self, key: Key, now: float, stale: bool) -> None:
        self._ends.pop(key, None)
        self.lifetime.ended(key, now - self.born.pop(key), stale)


@dataclass(frozen=True)
class Score:
    """Sums over some requests."""

    requests: int
    hits: int
    bytes: int
    """Asked for."""
    bytes_hit: int
    cost: float
    """Seconds of compute without a cache."""
    cost_saved: float

    @property
    def hit_ratio(self) -> float:
        """0…1, of the requests."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def byte_hit_ratio(self) -> float:
        """0…1, of the bytes asked for."""
        return self.bytes_hit / self.bytes if self.bytes else 0.0

    @property
    def saved(self) -> float:
        """0…1, of the cost: the cost-weighted hit ratio."""
        return self.cost_saved / self.cost if self.cost else 0.0


def score(trace: Trace, hits: Hits, part: slice | Hits = slice(None)) -> Score:
    """The sums over `part` of the requests: a slice, or bool [n]."""
    ids, hit = trace.ids[part], hits[part]
    sizes, costs = trace.sizes[ids], trace.costs[ids]
    return Score(
        len(ids), int(hit.sum()), int(sizes.sum()), int(sizes[hit].sum()), float(costs.sum()), float(costs[hit].sum())
    )  # fmt: skip


def by_tenant(trace: Trace, hits: Hits) -> Mapping[str, Score]:
    """A score a tenant."""
    return {name: score(trace, hits, trace.owners[trace.ids] == place) for place, name in enumerate(trace.tenants)}


def by_modality(trace: Trace, hits: Hits) -> Mapping[str, Score]:
    """A score a modality."""
    return {name: score(trace, hits, trace.kinds[trace.ids] == place) for place, name in enumerate(trace.modalities)}
