"""Every tracker against a plain set of edges; their limits; what they clear away."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.refs import forward
from mmcache.refs.base import References
from mmcache.refs.counted import CountedReferences
from mmcache.refs.forward import ForwardReferences, Index
from mmcache.refs.limits import EdgeLimit
from mmcache.refs.soft import SoftReferences
from mmcache.refs.versioned import VersionedReferences
from mmcache.testing import make_key

Tracker = Callable[..., References]
TRACKERS: list[Tracker] = [CountedReferences, VersionedReferences, SoftReferences]
NODES = st.integers(0, 7).map(make_key)
CALLS = st.lists(
    st.tuples(st.just("link"), NODES, st.lists(NODES, max_size=3))
    | st.tuples(st.sampled_from(["unlink", "leave"]), NODES, st.just([])),
    max_size=40,
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead rows are cleared away, and rows get an index, in graphs as small as these."""
    monkeypatch.setattr(forward, "_FEW_ROWS", 4)
    monkeypatch.setattr(forward, "_LOOKS", 1)


def above(edges: set[tuple[Key, Key]], keys: set[Key]) -> set[Key]:
    while more := {parent for parent, child in edges if child in keys} - keys:
        keys = keys | more
    return keys


@pytest.mark.parametrize("tracker", TRACKERS)
@given(calls=CALLS, asked=st.sets(NODES, max_size=3))
def test_equals_a_set_of_edges(tracker: Tracker, calls: list[tuple[str, Key, list[Key]]], asked: set[Key]) -> None:
    references, edges, left = tracker(), set[tuple[Key, Key]](), set[Key]()
    for call, parent, children in calls:
        if call == "link":
            references.link(parent, iter(children))
            edges |= {(parent, child) for child in children}
            if children:
                left.discard(parent)
        elif call == "leave":
            references.leave(parent)
            left.add(parent)
        else:
            assert references.unlink(parent) == any(edge[0] == parent for edge in edges)
            edges = {edge for edge in edges if edge[0] != parent}
        assert references.reach(iter(asked)) == above(edges, asked)
    assert set(references.parents()) == {parent for parent, _ in edges}
    if not isinstance(references, SoftReferences):
        for key in map(make_key, range(8)):
            assert references.holds(key) == len({p for p, child in edges if child == key and p not in left})


@pytest.mark.parametrize("tracker", [VersionedReferences, SoftReferences])
@given(calls=CALLS)
def test_whoever_is_valid_was_made_from_nothing_that_changed(
    tracker: type[VersionedReferences | SoftReferences], calls: list[tuple[str, Key, list[Key]]]
) -> None:
    """Lazily: nobody asks `reach`, so what is stale stays linked until it is found."""
    references = tracker()
    linked: dict[tuple[Key, Key], int] = {}
    changed: dict[Key, int] = {}
    for time, (call, parent, children) in enumerate(calls, 1):
        if call == "link":
            references.link(parent, children)
            for child in children:
                linked.setdefault((parent, child), time)
        elif call == "unlink":
            references.unlink(parent)
            changed[parent] = time
            linked = {edge: when for edge, when in linked.items() if edge[0] != parent}
        stale = {p for (p, child), when in linked.items() if changed.get(child, 0) > when}
        stale = above(set(linked), stale)
        valid = {key for key in map(make_key, range(8)) if references.valid(key)}
        assert not valid & stale
        if tracker is VersionedReferences:
            assert valid | stale == set(map(make_key, range(8))), "exactly"


@pytest.mark.parametrize("tracker", TRACKERS)
def test_limits_are_checked(tracker: Tracker) -> None:
    for wrong in ({"most_edges": 0}, {"most_gone": 0}):
        with pytest.raises(SettingsError, match="at least one link"):
            tracker(**wrong)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_the_longest_linked_are_too_many_first_and_those_that_left_before_them(tracker: Tracker) -> None:
    references = tracker(most_edges=10, most_gone=5)
    for n in range(10):
        references.link(make_key(n), [make_key(100)])
    assert not references.surplus()
    references.link(make_key(0), [make_key(101)])  # the eleventh link; and 0 is the youngest now
    assert references.surplus() == [make_key(1)]
    references.leave(make_key(7))
    assert references.surplus() == [make_key(7)]
    references.unlink(make_key(7))
    assert not references.surplus()


@pytest.mark.parametrize("tracker", TRACKERS)
def test_parents_that_left_are_at_most_as_many_as_the_others(tracker: Tracker) -> None:
    references = tracker(most_edges=1000, most_gone=5)
    for n in range(20):
        references.link(make_key(n), [make_key(100 + n)])
        if n % 2:
            references.leave(make_key(n))
    assert not references.surplus()
    references.leave(make_key(0))
    assert references.surplus() == [make_key(1), make_key(3)], "11 left, 9 did not"


def test_nothing_is_too_much_in_an_empty_graph() -> None:
    limit = EdgeLimit(10, 2)
    assert limit.excess(0, 0) == 0
    assert list(limit.choose(0, 0, [], [])) == []


@pytest.mark.parametrize("tracker", [VersionedReferences, SoftReferences])
def test_dead_rows_and_numbers_are_cleared_away(tracker: type[ForwardReferences]) -> None:
    references = tracker()
    for n in range(500):
        references.link(make_key(n), [make_key(n + 1), make_key(1000)])
        references.link(make_key(n), [make_key(2000 + n)])
        if n >= 10:
            references.unlink(make_key(n - 10))
        assert len(references._child) <= 2 * 33 + 4
        assert len(references._keys) <= len(references._child) + 1
    assert set(references.parents()) == {make_key(n) for n in range(490, 500)}
    assert references.reach([make_key(1000)]) == {make_key(1000), *map(make_key, range(490, 500))}
    for n in range(500):
        references.unlink(make_key(n))
    assert not references._keys
    assert not references._numbers
    assert not references._child


@pytest.mark.parametrize("numbers", [3, 70_000])
def test_an_index_finds_the_rows_of_a_child(numbers: int) -> None:
    child = np.random.default_rng(0).integers(0, numbers, 2000, dtype=np.int32)
    index = Index.of(child, numbers)
    asked = np.array([0, 1, numbers - 1, numbers + 5], np.int32)
    assert sorted(index.rows(asked)) == np.flatnonzero(np.isin(child, asked)).tolist()
    assert index.rows(asked[:0]).size == 0


@pytest.mark.parametrize("tracker", TRACKERS)
def test_long_chains_wide_fans_and_late_links_are_reached(tracker: Tracker) -> None:
    references = tracker()
    for n in range(2000):
        references.link(make_key(n + 1), [make_key(n)])
    assert len(references.reach([make_key(0)])) == 2001
    for n in range(2000):
        references.link(make_key(n, scope=2), [make_key(2000), make_key(3000)])
    assert len(references.reach([make_key(0)])) == 4001
    references.unlink(make_key(1000))
    assert references.reach([make_key(0)]) == set(map(make_key, range(1000)))
    for n in range(1990):
        references.unlink(make_key(n, scope=2))
    assert len(references.reach([make_key(3000)])) == 11
