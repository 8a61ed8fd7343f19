"""References against a plain set of edges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.key import Key
from mmcache.refs.counted import CountedReferences
from mmcache.testing import make_key

NODES = st.integers(0, 7).map(make_key)
CALLS = st.lists(st.tuples(NODES, st.none() | st.lists(NODES, max_size=3)), max_size=30)


def reach(edges: set[tuple[Key, Key]], keys: set[Key]) -> set[Key]:
    while more := {parent for parent, child in edges if child in keys} - keys:
        keys = keys | more
    return keys


@given(CALLS, st.sets(NODES, max_size=3))
def test_equals_a_set_of_edges(calls: list[tuple[Key, list[Key] | None]], asked: set[Key]) -> None:
    references, edges = CountedReferences(), set[tuple[Key, Key]]()
    for parent, children in calls:
        if children is None:
            references.unlink(parent)
            edges = {edge for edge in edges if edge[0] != parent}
        else:
            references.link(parent, iter(children))
            edges |= {(parent, child) for child in children}
    assert references.reach(iter(asked)) == reach(edges, asked)
    for key in map(make_key, range(8)):
        assert references.holds(key) == sum(child == key for _, child in edges)


def test_nothing_is_left_behind() -> None:
    references = CountedReferences()
    for n in range(1000):
        references.link(make_key(n), [make_key(n), make_key(n + 1), make_key(n // 2)])
    for n in range(1000):
        references.unlink(make_key(n))
    assert not references._children
    assert not references._parents


def test_a_long_chain_is_reached_without_recursion() -> None:
    references = CountedReferences()
    for n in range(5000):
        references.link(make_key(n + 1), [make_key(n)])
    assert len(references.reach([make_key(0)])) == 5001
