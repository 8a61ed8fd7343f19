"""Counted references: what is left behind, and what a child's parents are kept in."""

from __future__ import annotations

from mmcache.refs.counted import CountedReferences
from mmcache.testing import make_key


def test_nothing_is_left_behind() -> None:
    references = CountedReferences()
    for n in range(1000):
        references.link(make_key(n), [make_key(n), make_key(n + 1), make_key(n // 2)])
    for n in range(1000):
        references.unlink(make_key(n))
    assert not references._children
    assert not references._parents


def test_a_child_of_many_keeps_them_in_a_set_and_of_few_in_a_tuple() -> None:
    references = CountedReferences()
    for n in range(30):
        references.link(make_key(n), [make_key(100)])
        assert references.holds(make_key(100)) == n + 1
    assert isinstance(references._parents[make_key(100)], set)
    for n in range(28):
        references.unlink(make_key(n))
        assert references.holds(make_key(100)) == 29 - n
    assert isinstance(references._parents[make_key(100)], tuple)
    assert set(references._parents[make_key(100)]) == {make_key(28), make_key(29)}


def test_nothing_is_left_of_parents_that_came_and_went() -> None:
    references = CountedReferences()
    for n in range(100):
        references.link(make_key(n), [make_key(n + 1), make_key(n + 2)])
        references.leave(make_key(n))
        references.leave(make_key(n))
        references.link(make_key(n), [make_key(n + 3)])
        references.leave(make_key(n))
    assert references._gone_edges == references._edges == 300
    for n in range(100):
        references.unlink(make_key(n))
    assert (references._edges, references._gone_edges) == (0, 0)
    assert not references._gone
    assert not references._unheld
