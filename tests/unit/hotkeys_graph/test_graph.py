"""The hot-key graph: an exact decayed count, bounded, whose weakest go."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.hotkeys.graph import DECAY, HotGraph
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key


def key(number: int) -> Key:
    return Key(b"s" * 16, number.to_bytes(16, "big"))


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.0, 3.0), st.floats(0.0, 300.0)), max_size=60
)


class Eager:
    """As the formula says: at each tick every weight is multiplied."""

    def __init__(self) -> None:
        self.weights: defaultdict[tuple[int, int], float] = defaultdict(float)
        self.tick = 0.0

    def follow(self, source: int, target: int, amount: float, later: float) -> None:
        self.tick += later
        for edge in self.weights:
            self.weights[edge] *= DECAY**later
        if source != target:
            self.weights[source, target] += amount


@settings(derandomize=True, max_examples=100)
@given(STEPS, st.sampled_from([1.0, 1e3, 1e5]))
def test_lazily_decayed_weights_are_what_eagerly_decayed_ones_are(
    steps: list[tuple[int, int, float, float]], stretch: float
) -> None:
    graph, eager = HotGraph(), Eager()
    for source, target, amount, later in steps:
        eager.follow(source, target, amount, later * stretch)
        graph.follow(key(source), key(target), eager.tick, amount)
        for (one, other), weight in eager.weights.items():
            assert graph.weight(key(one), key(other), eager.tick) == pytest.approx(weight, rel=1e-9, abs=1e-12)
    arrays = graph.arrays(eager.tick)
    assert math.fsum(arrays.weight) == pytest.approx(math.fsum(eager.weights.values()), rel=1e-9, abs=1e-12)


@settings(derandomize=True, max_examples=100)
@given(
    st.integers(2, 12), st.integers(1, 12), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=200)
)
def test_bounds_hold_whatever_comes(nodes: int, edges: int, steps: list[tuple[int, int]]) -> None:
    graph = HotGraph(nodes, edges)
    for tick, (one, other) in enumerate(steps):
        graph.use(key(one), tick)
        graph.follow(key(one), key(other), tick)
        assert len(graph) <= graph.size <= nodes
        assert graph.edges <= edges
    source, target, weight = graph.arrays(len(steps))
    assert len(source) == len(target) == len(weight) == graph.edges
    for one, other, value in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
        assert graph.weight(graph.key(one), graph.key(other), len(steps)) == pytest.approx(value)  # none leads nowhere
    assert graph.size - len(graph) == sum(_empty(graph, place) for place in range(graph.size))


def _empty(graph: HotGraph, place: int) -> bool:
    try:
        graph.key(place)
    except IndexError:
        return True
    return False


def test_what_is_used_stays_while_others_come_and_go() -> None:
    graph = HotGraph(64, 64)
    for tick in range(2000):
        graph.use(key(0), tick)
        graph.use(key(1), tick)
        graph.follow(key(0), key(1), tick)
        graph.use(key(100 + tick), tick)
        graph.follow(key(1), key(100 + tick), tick)
    assert key(0) in graph
    assert key(1) in graph
    assert graph.weight(key(0), key(1), 1999) == pytest.approx((1 - DECAY**2000) / (1 - DECAY))
    assert [one for one, _, _ in graph.hottest(2, 1999)] == [key(0), key(1)]
    assert graph.gone_nodes > 1900


def test_a_place_that_is_used_again_begins_from_nothing() -> None:
    graph = HotGraph()
    graph.use(key(1), 0.0, 9.0)
    graph.follow(key(1), key(2), 0.0)
    graph.assign(graph.communities + 7)
    graph.forget(key(1))
    graph.use(key(3), 0.0)
    assert graph.size == 2
    assert graph.heat(key(3), 0.0) == 1.0
    assert graph.edges == 0
    assert sorted(graph.communities.tolist()) == [0, 7]


def test_what_faded_takes_no_room() -> None:
    graph = HotGraph()
    for one in range(10):
        graph.use(key(one), 0.0)
        graph.follow(key(one), key(one + 1), 0.0)
    graph.follow(key(3), key(4), 1000.0)
    graph.prune(1000.0, 0.02)
    assert graph.edges == 1
    assert len(graph) == 2


def test_a_mark_raises_heat_and_does_not_add_to_it() -> None:
    graph = HotGraph()
    graph.at_least(key(1), 0.0, 100.0)
    graph.at_least(key(1), 0.0, 100.0)
    assert graph.heat(key(1), 0.0) == 100.0
    assert graph.heat(key(1), 138.0) == pytest.approx(50.0, rel=0.01)


def test_time_that_runs_backwards_stands_still() -> None:
    graph = HotGraph()
    graph.use(key(1), 100.0)
    graph.use(key(1), 50.0)
    assert graph.heat(key(1), 0.0) == 2.0


def test_an_empty_graph_can_be_looked_at() -> None:
    graph = HotGraph()
    graph.prune(1.0, 0.1)
    assert graph.hottest(5, 0.0) == []
    assert len(graph.arrays(0.0).weight) == 0
    graph.forget(key(1))


@pytest.mark.parametrize(("nodes", "edges", "decay"), [(1, 1, 0.9), (2, 0, 0.9), (2, 1, 0.0), (2, 1, 1.5)])
def test_a_graph_that_cannot_be_is_refused(nodes: int, edges: int, decay: float) -> None:
    with pytest.raises(SettingsError):
        HotGraph(nodes, edges, decay)


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=300))
def test_an_owner_with_less_than_his_share_loses_nothing(steps: list[tuple[int, int]]) -> None:
    most, graph, held = 40, HotGraph(40, 40), defaultdict[int, set[int]](set)
    before: dict[int, Key] = {}
    for tick, (owner, number) in enumerate(steps):
        number = number % 9 if not owner else number  # owner 0 has few
        one = Key(bytes([owner]) * 16, number.to_bytes(16, "big"))
        graph.use(one, tick, 1.0, owner)
        if owner in before:
            graph.follow(before[owner], one, tick, 1.0, owner)
        before[owner] = one
        held[owner].add(number)
        assert len(graph) <= most
        for number in held[0]:  # 9 of 40, of three owners
            assert Key(bytes(16), number.to_bytes(16, "big")) in graph
