"""Replays traffic through a real `Cache` in virtual time; computing is a queue before a few servers.

Real: lookups, deadlines, early refresh's draw, stale-while-revalidate, what the lifetime is told. Simulated: time, and
the pool. A request that finds nothing joins the computation under way or begins one; the one that refreshes waits for
it as well, all others get what is there. A value is the time at which its computation began.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mmcache.cache import Cache
from mmcache.keys.signing import Signature
from mmcache.lab.ttl_traffic import CHANGE_SECONDS, LATENCY, SERVERS, WARM_UP, Floats, Traffic
from mmcache.model.block import Facts
from mmcache.model.clock import Clock
from mmcache.model.key import PART_BYTES, Key
from mmcache.settings import Settings
from mmcache.ttl.base import Lifetime
from mmcache.ttl.refresh import early

_NOTHING = object()
HOT_SECONDS, HOT_SHARE = 5.0, 0.8
"""Hot are the contents that got this share of a modality's requests over so many seconds."""
AVALANCHE = 0.2
"""Share of the hot set."""


class Virtual:
    """A clock that is set. Satisfies `Clock`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall(self) -> float:
        """Seconds."""
        return 1.8e9 + self.now


class Recorded:
    """A lifetime that keeps what it promised. Satisfies `Lifetime`."""

    def __init__(self, lifetime: Lifetime) -> None:
        self.inner = lifetime
        self.promised: dict[Key, list[tuple[float, float]]] = {}
        """By key: (stored at, ends at)."""

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """See `Lifetime.deadline`."""
        end = self.inner.deadline(key, facts, now)
        self.promised.setdefault(key, []).append((now, np.inf if end is None else end))
        return end

    def used(self, key: Key, now: float) -> None:
        """See `Lifetime.used`."""
        self.inner.used(key, now)

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """See `Lifetime.ended`."""
        self.inner.ended(key, age, stale)


class Pool:
    """First come, first served: when a computation that is asked for now will be done."""

    def __init__(self, seed: int) -> None:
        self._free = {name: [0.0] * servers for name, servers in SERVERS.items()}
        self._random = np.random.default_rng(seed)

    def done(self, modality: str, now: float) -> float:
        """Books a server."""
        free, shape = self._free[modality], LATENCY[modality]
        ended = max(now, heapq.heappop(free)) + float(self._random.gamma(shape.shape, shape.scale))
        heapq.heappush(free, ended)
        return ended


@dataclass(frozen=True)
class Outcome:
    """What one lifetime made of one traffic, after the warm-up."""

    hits: float
    """Share of requests answered at once, from the cache."""
    by_modality: dict[str, float]
    p99: float
    """Seconds."""
    stale: float
    """Share of the answers from the cache whose source had changed, expected at their ages."""
    avalanches: float
    """Share of the ends of hot blocks that were part of an avalanche: over 20 % of the modality's hot set ending within
    one mean recompute time."""
    saved: float
    """Share of the compute time saved that answering everything by computing would take, at each modality's mean."""


def replay(
    traffic: Traffic, lifetime: Lifetime, seed: int, *, beta: float = 0.0, grace: float = 0.0,
    progress: Callable[[float], None] = lambda done: None,
) -> Outcome:  # fmt: skip
    """Play it. beta: of early refresh, 0 = none. grace: seconds of stale-while-revalidate."""
    clock: Virtual = Virtual()
    as_clock: Clock = clock
    recorded, pool, chance = Recorded(lifetime), Pool(seed), random.Random(seed)
    times, contents = traffic.times.tolist(), traffic.contents.tolist()
    waits, cached, ages = np.zeros(len(times)), np.zeros(len(times), bool), np.zeros(len(times))
    landing: list[tuple[float, int, float]] = []
    flying: dict[int, float] = {}
    computed = dict.fromkeys(LATENCY, 0)
    with Cache(
        memory="1GiB", ttl=recorded, stale_while_revalidate=grace, settings=Settings(early_refresh=beta),
        policy="lru", clock=as_clock, secret=bytes(32),
    ) as cache:  # fmt: skip
        scopes = {name: _scope(cache, name) for name in LATENCY}
        keys = [_key(scopes[name], number) for number, name in enumerate(traffic.modality)]

        def begin(content: int, now: float) -> float:
            ends = flying.get(content)
            if ends is None:
                computed[traffic.modality[content]] += now >= WARM_UP
                ends = flying[content] = pool.done(traffic.modality[content], now)
                heapq.heappush(landing, (ends, content, now))
            return ends

        releases = list(reversed(traffic.releases))
        for place, (now, content) in enumerate(zip(times, contents, strict=True)):
            while releases and releases[-1][0] <= now:
                clock.now, loaded = releases.pop()
                for one in loaded:
                    cost = LATENCY[traffic.modality[one]].mean
                    cache.put(keys[one], clock.now, cost=cost)
            while landing and landing[0][0] <= now:
                clock.now, landed, began = heapq.heappop(landing)
                del flying[landed]
                cache.put(keys[landed], began, cost=clock.now - began)
            clock.now = now
            found = cache._fresh(keys[content], _NOTHING)  # as `get_or_compute` looks first
            if found is _NOTHING:
                look = cache.answers.look_up([keys[content]], settled=True)[0]
                if look.make is None:
                    waits[place] = begin(content, now) - now
                    continue
                due = look.stale or (
                    beta and look.deadline is not None and early(look.deadline, look.saved, beta, now, chance.random())
                )
                if due and content not in flying:
                    waits[place] = begin(content, now) - now
                    continue
                found = look.make()
            cached[place] = True
            ages[place] = now - found
            if not place % 5000:
                progress(place / len(times))
    counted = traffic.times >= WARM_UP
    kind = np.array(traffic.modality)[traffic.contents]
    whole = sum(float((counted & (kind == name)).sum()) * shape.mean for name, shape in LATENCY.items())
    ended = _ended(
        {number: recorded.promised[key] for number, key in enumerate(keys) if key in recorded.promised}, times[-1]
    )
    return Outcome(
        hits=_share(cached[counted]),
        by_modality={name: _share(cached[counted & (kind == name)]) for name in LATENCY},
        p99=float(np.percentile(waits[counted], 99)),
        stale=_share(-np.expm1(-ages[counted & cached] / CHANGE_SECONDS)),
        avalanches=avalanches(traffic, ended),
        saved=1.0 - sum(computed[name] * shape.mean for name, shape in LATENCY.items()) / whole,
    )


def _share(values: npt.NDArray[np.bool_] | Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _scope(cache: Cache, modality: str) -> bytes:
    signature = replace(Signature.of(f"model-{modality}"), modality=modality)
    return cache.scopes.of(signature, cache.tenant, cache.namespace).digest


def _key(scope: bytes, number: int) -> Key:
    return Key(scope, hashlib.blake2b(number.to_bytes(8, "big"), digest_size=PART_BYTES).digest())


def _ended(promised: dict[int, list[tuple[float, float]]], until: float) -> list[tuple[float, int]]:
    """(when, content) of each block that reached its deadline before it was stored anew."""
    found = []
    for content, stored in promised.items():
        following = [when for when, _ in stored[1:]] + [np.inf]
        found += [(end, content) for (_, end), after in zip(stored, following, strict=True) if end < min(after, until)]
    return sorted(found)


def avalanches(traffic: Traffic, ended: list[tuple[float, int]]) -> float:
    """Share of the ends of hot blocks that fell into an avalanche, over all modalities."""
    inside = total = 0
    for name, shape in LATENCY.items():
        mine = np.array([one == name for one in traffic.modality])
        asked = mine[traffic.contents]
        times, contents = traffic.times[asked], traffic.contents[asked]
        spans: dict[int, set[int]] = {}
        for when, content in ended:
            if mine[content] and when >= WARM_UP:
                spans.setdefault(int(when / shape.mean), set()).add(content)
        hot: dict[int, frozenset[int]] = {}
        for number, gone in spans.items():
            second = int(number * shape.mean)
            if second not in hot:
                hot[second] = _hot(times, contents, float(second))
            lost = len(gone & hot[second])
            total += lost
            inside += lost if lost > AVALANCHE * len(hot[second]) else 0
    return inside / total if total else 0.0


def _hot(times: Floats, contents: npt.NDArray[np.int64], now: float) -> frozenset[int]:
    low, high = times.searchsorted([now - HOT_SECONDS, now])
    which, counts = np.unique(contents[low:high], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts[order]), HOT_SHARE * counts.sum())) + 1
    return frozenset(which[order[:enough]].tolist())
