"""The replay's counting and lifetimes; rivals and their refusal; what a policy itself costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mmcache.lab import rivals
from mmcache.lab.policy_cost import ADD, DROP, TOUCH, VICTIMS, bytes_a_block, nanoseconds, play, record
from mmcache.lab.replay import by_modality, by_tenant, policy_named, replay, score
from mmcache.lab.tinylfu import WTinyLFU
from mmcache.lab.traces import Trace, synthetic
from mmcache.lab.traces.encoder_costs import costed
from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.lru import LRU
from mmcache.ttl.fixed import FixedTTL

LIBRARY = len(rivals.available()) > 1


def trace_of(*keys: int, sizes: int | list[int] = 1) -> Trace:
    return Trace.of("t", keys, None, sizes)


def test_scores_are_sums() -> None:
    trace = Trace(
        "t", np.array([0, 1, 0, 1], np.uint32), np.arange(4.0), np.array([10, 30]), np.array([1.0, 3.0]),
        np.array([0, 1]), np.array([0, 1]), ("image", "text"), ("a", "b"),
    )  # fmt: skip
    hits = np.array([False, False, True, False])
    whole = score(trace, hits)
    assert (whole.requests, whole.hits, whole.bytes, whole.bytes_hit) == (4, 1, 80, 10)
    assert (whole.hit_ratio, whole.byte_hit_ratio, whole.saved) == (0.25, 0.125, 0.125)
    assert score(trace, hits, slice(2, 4)).hit_ratio == 0.5
    assert score(trace, hits, slice(4, 4)).hit_ratio == 0
    assert {name: one.hits for name, one in by_tenant(trace, hits).items()} == {"a": 1, "b": 0}
    assert by_modality(trace, hits)["image"].hit_ratio == 0.5


def test_what_is_larger_than_the_cache_passes_by() -> None:
    found = replay(trace_of(1, 2, 1, 2, sizes=[5, 1, 5, 1]), LRU(), 3)
    assert found.hits.tolist() == [False, False, False, True]
    assert (found.refused, found.evicted) == (0, 0)


class Never(LRU):
    """Refuses all that needs room."""

    refuses = True

    def add(self, key: Key, facts: Facts, now: float) -> None:
        super().add(key, facts, now)
        self._order.move_to_end(key, last=False)


def test_a_refused_block_evicts_nothing() -> None:
    found = replay(trace_of(1, 2, 3, 1, 2, 3), Never(), 2)
    assert found.hits.tolist() == [False, False, False, True, True, False]
    assert (found.refused, found.evicted) == (2, 0)


def test_a_lifetime_ends_hits_and_tells_ages() -> None:
    trace = Trace.of("t", [1, 1, 1, 1], [0.0, 5.0, 11.0, 12.0])
    found = replay(trace, LRU(), 9, lifetime=FixedTTL(10.0))
    assert found.hits.tolist() == [False, True, False, True]
    assert found.ages is not None
    assert found.ages.tolist() == [0, 5, 0, 1]
    assert found.expired == 1
    endless = replay(trace, LRU(), 9, lifetime=FixedTTL(None))
    assert endless.hits.tolist() == [False, True, True, True]


def test_what_is_over_leaves_room() -> None:
    trace = Trace.of("t", [1, 2, 3, 2], [0.0, 1.0, 10.5, 10.6])
    assert replay(trace, LRU(), 2, lifetime=FixedTTL(10.0)).evicted == 0


@pytest.mark.skipif(not LIBRARY, reason="libcachesim is not installed: pip install 'mmcache[rivals]'")
@pytest.mark.parametrize("pattern", ["scan", "drift"])
def test_a_rival_lru_is_our_lru(pattern: str) -> None:
    trace = costed(synthetic.pattern(pattern, 5000), 0)
    limit = trace.capacity(10)
    assert (rivals.hits(trace, "LRU", limit) == replay(trace, policy_named("lru"), limit).hits).all()


@pytest.mark.skipif(not LIBRARY, reason="libcachesim is not installed: pip install 'mmcache[rivals]'")
@pytest.mark.parametrize("rival", rivals.NAMES)
def test_every_rival_runs_and_keeps_to_its_bytes(rival: str, capfd: pytest.CaptureFixture[str]) -> None:
    trace = costed(synthetic.pattern("popular", 3000), 1)
    found = score(trace, rivals.hits(trace, rival, trace.capacity(10)))
    assert 0 < found.hit_ratio < 0.9
    heavy = replace(trace, sizes=trace.sizes * 1021)  # more bytes than 32 bits count
    rivals.hits(heavy, rival, heavy.capacity(50))
    told = capfd.readouterr()
    assert told.out == told.err == ""


def test_gdsf_prefers_cost_a_byte() -> None:
    cheap, dear = 1, 2
    trace = Trace.of("t", [dear, cheap, 3, dear, cheap], None, 1)
    trace = Trace("t", trace.ids, trace.times, trace.sizes, np.array([9.0, 1.0, 2.0]), trace.kinds, trace.owners)
    assert rivals.cost_gdsf(trace, 2).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("pattern", ["scan", "loop", "drift"])
@pytest.mark.parametrize("percent", [1, 20])
def test_an_adaptive_tinylfu_keeps_to_its_bytes(pattern: str, percent: int) -> None:
    trace = costed(synthetic.pattern(pattern, 3000), 2)
    limit, sizes = trace.capacity(percent), trace.sizes.tolist()
    cache = WTinyLFU(limit, sizes, float(trace.sizes.mean()))
    for block in trace.ids.tolist():
        if sizes[block] <= limit:
            cache.request(block)
            held = [*cache._window, *cache._probation, *cache._protected]
            assert len(set(held)) == len(held)
            assert sum(sizes[one] for one in held) == cache._held <= limit


def test_a_tape_plays_what_was_asked() -> None:
    trace = synthetic.pattern("loop", 2000)
    steps = record(trace, "lru", trace.capacity(10))
    assert {step[0] for step in steps} == {ADD, TOUCH, DROP, VICTIMS}
    again = LRU()
    play(steps, again)
    assert list(again.victims(0.0))
    assert bytes_a_block(trace, "lru", trace.capacity(10)) > 16
    assert {len(samples) for samples in nanoseconds(trace, ["lru"], trace.capacity(10), 2).values()} == {2}
