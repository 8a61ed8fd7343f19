"""Whatever is asked for, our policy saves at most 5 % less than LRU: scans, loops, crowds, one-hit wonders, mixtures.

How much is lost to learning is a matter of chance, so what runs every time draws the same workloads every time; what is
slow draws new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from mmcache.lab.replay import policy_named, replay, score
from mmcache.lab.traces import Trace
from mmcache.lab.traces.trace import Integers
from mmcache.policies.auto import make_core
from mmcache.policies.auto_python import PythonCore
from mmcache.policies.lru import LRU

TOLERATED = 0.05
"""Of what LRU saves."""
NOISE = 0.002
"""Of all cost: what a few blocks more or less make, where LRU saves next to nothing."""
KINDS = ("popular", "scan", "loop", "flash", "one-hit", "drift", "recent", "phases")
needs_compiled = pytest.mark.skipif(
    isinstance(make_core(), PythonCore), reason="minutes without the compiled core; the plain one decides the same"
)
NEW = 10**6
"""From this number on: blocks that belong to the pattern, not to the popular ones."""


@dataclass(frozen=True)
class Shape:
    """A workload's free parameters; `extent` is in units of the blocks that fit into the cache."""

    seed: int
    blocks: int
    """That fit, about."""
    extent: float
    """How much larger or smaller than the cache the pattern is."""
    share: float
    """Of the requests, that follow the pattern."""
    exponent: float
    """Zipf's, of the popular blocks."""
    varied: str
    """What differs between blocks: nothing, size, cost, or both."""


SHAPES = st.builds(
    Shape,
    seed=st.integers(0, 10_000),
    blocks=st.sampled_from([30, 100, 300]),
    extent=st.floats(0.1, 4.0),
    share=st.floats(0.2, 0.9),
    exponent=st.floats(0.5, 1.2),
    varied=st.sampled_from(["nothing", "size", "cost", "both"]),
)


def popular(random: np.random.Generator, count: int, blocks: int, exponent: float) -> Integers:
    """int64 [count]: blocks 0…`blocks`, Zipf-distributed."""
    weights = np.arange(1, max(2, blocks) + 1, dtype=np.float64) ** -exponent
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).astype(np.int64)


def requests(kind: str, count: int, shape: Shape) -> Integers:
    """int64 [count]: what is asked for."""
    random = np.random.default_rng([shape.seed, KINDS.index(kind)])
    span = max(2, int(shape.blocks * shape.extent))
    keys = popular(random, count, int(shape.blocks * random.uniform(0.5, 10)), shape.exponent)
    place = np.arange(count)
    within = random.random(count) < shape.share
    match kind:
        case "scan":  # again and again, `span` blocks are read once
            period = max(span + 1, int(span / shape.share))
            scanned = place % period < span
            keys[scanned] = NEW + place[scanned]
        case "loop":  # `span` blocks in one order for ever, among popular ones
            keys[within] = NEW + np.arange(int(within.sum())) % span
        case "flash":  # a crowd comes for a few new blocks, goes for good; then for others
            crowd = place // (4 * shape.blocks)
            few = max(1, int(shape.blocks * min(shape.extent, 1)))
            flash = within & (crowd % 2 == 1)
            keys[flash] = NEW + crowd[flash] * few + random.integers(0, few, int(flash.sum()))
        case "one-hit":
            keys[within] = NEW + np.arange(int(within.sum()))
        case "drift":  # what is popular moves on, up to a block every other request
            keys += (place * shape.share * 0.5).astype(np.int64)
        case "recent":  # the deeper in LRU's stack, the less asked for
            keys = _recent(random, count, shape)
        case "phases":  # all blocks change at once
            long = max(50, int(shape.blocks * 20 * shape.share))
            keys = place // long * NEW + random.integers(0, span, count)
    return keys


def _recent(random: np.random.Generator, count: int, shape: Shape) -> Integers:
    stack: list[int] = []
    keys = np.zeros(count, np.int64)
    depths = (random.pareto(shape.exponent, count) * shape.blocks * 0.1).astype(np.int64).tolist()
    fresh = (random.random(count) > shape.share).tolist()
    for place in range(count):
        again = stack and not fresh[place]
        number = stack.pop(-1 - min(len(stack) - 1, depths[place])) if again else place
        stack.append(number)
        keys[place] = number
        if len(stack) > 8 * shape.blocks:
            stack.pop(0)
    return keys


def traced(keys: Integers, shape: Shape) -> tuple[Trace, int]:
    """The trace, and the bytes of a cache that holds about `shape.blocks` of its blocks."""
    random = np.random.default_rng([shape.seed, 99])
    trace = Trace.of("made up", keys, None, 4096)
    count = len(trace.sizes)
    if shape.varied in ("size", "both"):
        trace = replace(trace, sizes=(4096 * random.lognormal(0, 1.2, count)).astype(np.int64) + 1)
    if shape.varied in ("cost", "both"):
        trace = replace(trace, costs=random.lognormal(0, 1, count) * trace.sizes / 4096)
    return trace, int(shape.blocks * trace.sizes.mean())


def saved(name: str, trace: Trace, limit: int) -> float:
    return score(trace, replay(trace, LRU() if name == "lru" else policy_named(name), limit).hits).saved


def assert_not_much_worse(keys: Integers, shape: Shape) -> None:
    trace, limit = traced(keys, shape)
    least = saved("lru", trace, limit)
    ours = saved("auto", trace, limit)
    target((least - ours) / max(least, NOISE), label="what LRU saves more")
    assert ours >= least * (1 - TOLERATED) - NOISE


@needs_compiled
@pytest.mark.parametrize("kind", KINDS)
@given(shape=SHAPES)
@settings(max_examples=8, deadline=None, derandomize=True)
def test_at_most_a_twentieth_less_is_saved_than_by_lru(kind: str, shape: Shape) -> None:
    assert_not_much_worse(requests(kind, 8000, shape), shape)


@needs_compiled
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=3), shape=SHAPES, one_after_another=st.booleans()
)  # fmt: skip
@settings(max_examples=12, deadline=None, derandomize=True)
def test_so_in_mixtures(kinds: list[str], shape: Shape, one_after_another: bool) -> None:
    # Where patterns follow on each other, each is long enough to be learned; see below.
    assert_not_much_worse(mixture(kinds, 20_000 if one_after_another else 8000, shape, one_after_another), shape)


@needs_compiled
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "mixture"])
@given(data=st.data(), shape=SHAPES)
@settings(max_examples=60, deadline=None)
def test_so_over_long_streams(kind: str, data: st.DataObject, shape: Shape) -> None:
    count = data.draw(st.sampled_from([20_000, 30_000]))
    if kind == "mixture":
        kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=3))
        one_after_another = data.draw(st.booleans())
        # What one pattern taught must be unlearned: the worst found costs 5.5 % over 20 000 requests, 3 % over 80 000.
        keys = mixture(kinds, 60_000 if one_after_another else count, shape, one_after_another)
    else:
        keys = requests(kind, count, shape)
    assert_not_much_worse(keys, shape)


def mixture(kinds: list[str], count: int, shape: Shape, one_after_another: bool) -> Integers:
    """Streams of `kinds`, at random among each other or one after another; none shares a block with another."""
    parts = [requests(kind, count, shape) + number * 1000 * NEW for number, kind in enumerate(kinds)]
    if one_after_another:
        chosen = np.arange(count) * len(kinds) // count
    else:
        chosen = np.random.default_rng(shape.seed).integers(0, len(kinds), count)
    return np.stack(parts)[chosen, np.arange(count)]


@pytest.mark.parametrize("kind", ["scan", "one-hit"])
def test_what_is_read_once_does_not_push_out_what_is_popular(kind: str) -> None:
    shape = Shape(seed=1, blocks=200, extent=2.0, share=0.6, exponent=0.9, varied="nothing")
    trace, limit = traced(requests(kind, 20_000, shape), shape)
    assert saved("auto", trace, limit) > 1.1 * saved("lru", trace, limit)


def test_what_saves_most_per_byte_stays() -> None:
    random = np.random.default_rng(3)
    keys = popular(random, 20_000, 2000, 0.6)
    trace = Trace.of("dear and cheap", keys, None, 4096)
    dear = random.random(len(trace.sizes)) < 0.1
    trace = replace(trace, costs=np.where(dear, 100.0, 1.0))
    assert saved("auto", trace, 200 * 4096) > 1.5 * saved("lru", trace, 200 * 4096)


def test_blocks_of_unknown_cost_are_still_worth_having() -> None:
    shape = Shape(seed=5, blocks=100, extent=1.0, share=0.5, exponent=1.0, varied="size")
    trace, limit = traced(requests("popular", 10_000, shape), shape)
    free = replace(trace, costs=np.zeros(len(trace.costs)))
    hits = {name: int(replay(free, policy_named(name), limit).hits.sum()) for name in ("auto", "lru")}
    assert hits["auto"] >= 0.95 * hits["lru"]


@given(kind=st.sampled_from(KINDS), shape=SHAPES)
@settings(max_examples=10, deadline=None)
def test_the_same_requests_give_the_same_hits(kind: str, shape: Shape) -> None:
    trace, limit = traced(requests(kind, 1500, shape), shape)
    first, again = (replay(trace, policy_named("auto"), limit).hits.tolist() for _ in range(2))
    assert first == again
