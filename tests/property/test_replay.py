"""The laboratory's replay does what the memory tier does; no policy beats the bounds; Belady's is the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache import plugins
from mmcache.lab.bounds import belady, flow_bound, next_uses
from mmcache.lab.replay import policy_named, replay, score
from mmcache.lab.rivals import cost_gdsf
from mmcache.lab.traces import Trace, synthetic
from mmcache.lab.traces.encoder_costs import costed
from mmcache.model.block import Facts
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.policies.base import Policy
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock
from mmcache.testing.frames import WholeThaw, make_frame
from mmcache.tiers.memory import MemoryTier, charged_bytes

POLICIES = plugins.names("policies")


class Picky(LRU):
    """Refuses a block as long as its digest is odd, or that it never saw before."""

    refuses = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Key] = set()
        self.newest: Key | None = None

    def add(self, key: Key, facts: Facts, now: float) -> None:
        super().add(key, facts, now)
        self.newest = None if key in self.seen else key
        self.seen.add(key)

    def victims(self, now):  # type: ignore[no-untyped-def]
        order = list(super().victims(now))
        if self.newest is not None and self.newest.digest[0] & 1:
            order.insert(1, self.newest)
        return iter(dict.fromkeys(order))


def through_the_tier(trace: Trace, policy: Policy, limit: int, charges: list[int]) -> list[bool]:
    """Hits of the real memory tier; each block's payload is as long as its frame is charged for in `charges`."""
    clock = FakeClock()
    tier = MemoryTier(MemorySettings(limit, largest_share=1.0), policy, WholeThaw, clock=clock)
    hits = []
    started = clock.monotonic()
    for block, moment in zip(trace.ids.tolist(), trace.times.tolist(), strict=True):
        clock.advance(max(0.0, started + moment - clock.monotonic()))
        key, facts = trace.keys[block], trace.facts[block]
        hit = not isinstance(tier.get([key])[0], MissReason)
        hits.append(hit)
        if not hit:
            tier.put([framed(key, facts, charges[block])], [None])
    tier.close()
    return hits


def framed(key: Key, facts: Facts, payload: int):  # type: ignore[no-untyped-def]
    return make_frame(key, b"x" * payload, modality=facts.modality, tenant=facts.tenant, cost=facts.cost)


def charged(trace: Trace, payloads: list[int]) -> Trace:
    """`trace` with each block as heavy as the memory tier charges for its frame."""
    sizes = [
        charged_bytes(frame := framed(key, facts, payload), WholeThaw(frame))
        for key, facts, payload in zip(trace.keys, trace.facts, payloads, strict=True)
    ]
    return Trace(
        trace.name, trace.ids, trace.times, np.array(sizes, np.int64), trace.costs, trace.kinds, trace.owners,
        trace.modalities, trace.tenants,
    )  # fmt: skip


requests = st.lists(st.integers(0, 12), min_size=1, max_size=120)


@pytest.mark.parametrize("name", [*POLICIES, "picky"])
@given(keys=requests, seed=st.integers(0, 3), blocks=st.floats(0.5, 9))
@settings(max_examples=25, deadline=None)
def test_a_replay_is_what_the_memory_tier_does(name: str, keys: list[int], seed: int, blocks: float) -> None:
    trace = costed(Trace.of("t", keys, np.arange(len(keys)) * 7.0, 4096), seed)
    payloads = [10 + 400 * (number % 5) for number in range(len(trace.sizes))]
    trace = charged(trace, payloads)
    limit = int(blocks * trace.sizes.mean())
    mine, real = (Picky() if name == "picky" else policy_named(name) for _ in range(2))
    assert replay(trace, mine, limit).hits.tolist() == through_the_tier(trace, real, limit, payloads)


@pytest.mark.parametrize("name", POLICIES)
def test_so_on_a_longer_stream(name: str) -> None:
    trace = costed(synthetic.pattern("drift", 1500), 0)
    payloads = [10 + 97 * (number % 31) for number in range(len(trace.sizes))]
    trace = charged(trace, payloads)
    limit = trace.capacity(10)
    assert replay(trace, policy_named(name), limit).hits.tolist() == through_the_tier(
        trace, policy_named(name), limit, payloads
    )


@given(keys=requests, sizes=st.lists(st.integers(1, 9), min_size=13, max_size=13), limit=st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_no_policy_beats_the_bound(keys: list[int], sizes: list[int], limit: int) -> None:
    trace = Trace.of("t", keys, None, [sizes[key] for key in keys])
    part = slice(len(keys) // 3, len(keys))
    for hits in (replay(trace, policy_named("lru"), limit).hits, cost_gdsf(trace, limit)):
        assert score(trace, hits).saved <= flow_bound(trace, limit, windows=7) + 1e-9
        assert score(trace, hits, part).saved <= flow_bound(trace, limit, part) + 1e-9


@given(keys=requests, limit=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_the_optimum_of_equal_blocks_is_between_every_policy_and_the_bound(keys: list[int], limit: int) -> None:
    trace = Trace.of("t", keys)
    best = int(belady(trace, limit).sum())
    assert int(replay(trace, policy_named("lru"), limit).hits.sum()) <= best
    assert int(cost_gdsf(trace, limit).sum()) <= best
    assert best <= flow_bound(trace, limit) * len(keys) + 1e-6
    assert best == most_hits(trace.ids.tolist(), limit)


def most_hits(keys: list[int], room: int) -> int:
    """The optimum by trying everything (states merge, so that it ends)."""
    states: dict[frozenset[int], int] = {frozenset(): 0}
    later = [set(keys[place:]) for place in range(len(keys) + 1)]
    for place, key in enumerate(keys):
        following: dict[frozenset[int], int] = {}
        for held, hits in states.items():
            count = hits + (key in held)
            whole = frozenset((held | {key}) & later[place + 1])
            options = [whole] if len(whole) <= room else [whole - {gone} for gone in whole]
            for option in options:
                following[option] = max(following.get(option, 0), count)
        states = following
    return max(states.values())


def test_next_uses() -> None:
    assert next_uses(Trace.of("t", [5, 6, 5, 5, 6])).tolist() == [2, 4, 3, 5, 5]
