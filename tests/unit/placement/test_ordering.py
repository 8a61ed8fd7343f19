"""Edges and chains: bounded, each block once, the heaviest neighbours side by side."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.placement.moves import ordered
from mmcache.placement.ordering import Edge, Together, chains

gathers = st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=30)


@given(gathers, st.integers(1, 9))
@settings(deadline=None, derandomize=True)
def test_each_block_is_in_one_chain_and_chains_follow_edges(seen: list[list[int]], most: int) -> None:
    together = Together()
    for gather in seen:
        together.used(gather)
    edges = list(together.edges())
    assert [edge.weight for edge in edges] == sorted((edge.weight for edge in edges), reverse=True)
    found = chains(edges, most)
    blocks = [block for chain in found for block in chain.blocks]
    assert len(blocks) == len(set(blocks))
    known = {frozenset((edge.one, edge.other)): edge.weight for edge in edges}
    for chain in found:
        assert 2 <= len(chain.blocks) <= max(most, 2)
        assert [known[frozenset(pair)] for pair in pairwise(chain.blocks)] == list(chain.weights)
    assert [chain.weight for chain in found] == sorted((chain.weight for chain in found), reverse=True)
    laid = list(ordered(found, list(range(13))))
    assert len(laid) == 13
    assert set(laid) == set(range(13))


def test_the_heaviest_edge_is_always_kept() -> None:
    edges = [Edge("a", "b", 9.0), Edge("c", "b", 7.0), Edge("b", "d", 6.0), Edge("a", "c", 5.0), Edge("d", "c", 3.0)]
    assert [chain.blocks for chain in chains(edges)] == [("a", "b", "c", "d")]


def test_older_gathers_count_for_less() -> None:
    together = Together(horizon=10)
    together.used("ab")
    for _ in range(30):
        together.used("cd")
    weights = {(edge.one, edge.other): edge.weight for edge in together.edges()}
    assert 0.02 < weights["a", "b"] < 0.08
    assert 9.0 < weights["c", "d"] < 11.0


def test_memory_is_bounded_whatever_comes() -> None:
    together = Together(most_edges=100)
    for n in range(5000):
        together.used([n, n + 1])
        together.used(["hot", "pair"])
        assert len(together) <= 100
    assert next(together.edges()).one == "hot"


def test_numbers_stay_finite() -> None:
    together = Together(horizon=2)
    for _ in range(3000):
        together.used("ab")
    assert 2.0 < next(together.edges()).weight < 4.0


def test_what_is_gone_is_forgotten() -> None:
    together = Together()
    together.used("abc")
    together.forget("b")
    assert [(edge.one, edge.other) for edge in together.edges()] == [("a", "c")]
