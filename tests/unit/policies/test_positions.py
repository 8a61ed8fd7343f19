"""Ordered positions against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mmcache.policies.positions import Positions

SIZES = st.sampled_from([1, 2, 64, 65, 1000, 4096, 4097, 300_000])


@given(
    SIZES.flatmap(lambda size: st.tuples(st.just(size), st.lists(st.tuples(st.booleans(), st.integers(0, size - 1)))))
)
def test_equals_a_set(case: tuple[int, list[tuple[bool, int]]]) -> None:
    size, calls = case
    positions, members = Positions(size), set[int]()
    for add, number in calls:
        if add:
            positions.add(number)
            members.add(number)
        else:
            positions.discard(number)
            members.discard(number)
        assert bool(positions) == bool(members)
        for asked in (0, number, number + 1, size):
            assert positions.next(asked) == min((one for one in members if one >= asked), default=None)


def test_what_left_takes_no_memory() -> None:
    positions = Positions(300_000)
    for number in range(0, 300_000, 1000):
        positions.add(number)
    for number in range(0, 300_000, 1000):
        positions.discard(number)
    assert not any(positions._floors)
