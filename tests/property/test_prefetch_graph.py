"""The behaviour graph against a plain count of the same visits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.prefetch.graph import BehaviourGraph, GraphSettings
from mmcache.prefetch.sessions import Sessions

VISITS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(0, 500)), max_size=60)
"""Session, node, seconds since the visit before."""


@settings(derandomize=True, max_examples=150, deadline=None)
@given(visits=VISITS, window=st.integers(1, 4))
def test_roomy_graph_is_an_exact_decayed_count(visits: list[tuple[int, int, float]], window: int) -> None:
    half_life, doubt = 100.0, 2.0
    graph: BehaviourGraph[int] = BehaviourGraph(GraphSettings(half_life=half_life, doubt=doubt, floor=0.05))
    sessions: Sessions[int] = Sessions(gap=300.0, window=window)
    seen: list[tuple[int, tuple[int, ...], float]] = []
    now = 0.0
    for session, node, passed in visits:
        now += passed
        earlier = sessions.visit(session, node, now)
        if earlier is not None:
            seen.append((node, earlier, now))
            graph.observe(node, earlier, now)
    nodes: Counter[int] = Counter()
    edges: Counter[tuple[int, int]] = Counter()
    for node, earlier, then in seen:
        weight = 0.5 ** ((now - then) / half_life)
        nodes[node] += weight
        for source in earlier:
            edges[source, node] += weight
    assert graph.edges == len(edges)
    for source in range(10):
        expected = {
            target: min(1.0, weight / (nodes[source] + doubt))
            for (one, target), weight in edges.items()
            if one == source
        }
        assert graph.out(source, now) == pytest.approx(expected)
    for one in graph.candidates([0, 1], now):
        assert one.node not in (0, 1)
        assert 0.05 <= one.probability <= 1.0
        assert 1 <= one.hop <= 3


@settings(derandomize=True, max_examples=60, deadline=None)
@given(visits=VISITS, most=st.integers(1, 6), out=st.integers(1, 3))
def test_tight_graph_keeps_its_bounds_and_never_overrates(
    visits: list[tuple[int, int, float]], most: int, out: int
) -> None:
    bounds = GraphSettings(most_nodes=most, most_edges=4, most_out=out, half_life=1e9, doubt=0.0)
    graph: BehaviourGraph[int] = BehaviourGraph(bounds)
    seen: Counter[tuple[int, int]] = Counter()
    before: int | None = None
    for _, node, _ in visits:
        earlier: tuple[int, ...] = () if before is None or before == node else (before,)
        seen.update((source, node) for source in earlier)
        graph.observe(node, earlier, 0.0)
        before = node
        assert len(graph) <= most
        assert graph.edges <= 4
        assert graph.edges == sum(len(graph.out(one, 0.0)) for one in graph)
    for source in graph:
        weights = graph._weights(source)
        assert len(weights) <= out
        for target, weight in weights:
            assert weight <= seen[source, target] + 1e-9
