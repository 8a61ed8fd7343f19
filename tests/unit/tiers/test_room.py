"""Making room, pins and expiries, each against a plain model."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import IntegrityError
from mmcache.testing import make_key
from mmcache.tiers.expiry import Expiries
from mmcache.tiers.pins import Pins
from mmcache.tiers.room import FITS, make_room

NUMBERS = st.integers(0, 9)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=10, max_size=10), new=NUMBERS, excess=st.integers(-5, 300),
    pinned=st.sets(NUMBERS), needed=st.sets(NUMBERS), may_refuse=st.booleans(), spared=st.integers(0, 200),
)  # fmt: skip
def test_room_is_exact(
    sizes: list[int], new: int, excess: int, pinned: set[int], needed: set[int], may_refuse: bool, spared: int
) -> None:
    keys = [make_key(n) for n in range(10)]
    size = dict(zip(keys, sizes, strict=True)) | {keys[new]: 0}
    room = make_room(
        keys[new], excess, iter(keys), charge=size.__getitem__, pinned={keys[n] for n in pinned}.__contains__,
        holds=lambda key: int(key in {keys[n] for n in needed}), spared_bytes=spared, may_refuse=may_refuse,
    )  # fmt: skip
    if excess <= 0:
        assert room == FITS
    freed = sum(size[key] for key in room.victims)
    assert keys[new] not in room.victims
    assert not {keys[n] for n in pinned} & set(room.victims)
    if room.fits and excess > 0:
        assert freed >= excess > freed - size[room.victims[-1]]
    elif excess > 0:
        assert room.victims == ()
        assert room.outranked or sum(size[key] for n, key in enumerate(keys) if n not in pinned) < excess
    assert not room.outranked or may_refuse


def test_needed_blocks_go_last_and_not_beyond_their_share() -> None:
    keys = [make_key(n) for n in range(6)]

    def room(excess: int, spared: float) -> list[int]:
        found = make_room(
            make_key(99), excess, iter(keys), charge=lambda key: 10, pinned=lambda key: False,
            holds=lambda key: int(key in keys[:3]), spared_bytes=spared, may_refuse=False,
        )  # fmt: skip
        return [keys.index(key) for key in found.victims]

    assert room(20, 100) == [3, 4]
    assert room(40, 100) == [3, 4, 5, 0]
    assert room(20, 20) == [2, 3]
    assert room(20, 0) == [0, 1]


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(["pin", "unpin", "forget"]))))
def test_pins_equal_a_counter(steps: list[tuple[int, str]]) -> None:
    pins, model = Pins(45), Counter[int]()
    for n, step in steps:
        key = make_key(n)
        if step == "pin":
            fits = n in model or 10 * len(model) + 10 <= 45
            assert pins.add(key, 10) is fits
            model[n] += fits
        elif step == "unpin":
            pins.take_back(key)
            model[n] -= n in model
        else:
            assert pins.forget(key) == model.pop(n, 0)
        model = +model
        assert pins.bytes == 10 * len(model)
        assert {n for n in range(10) if make_key(n) in pins} == set(model)
        pins.check({make_key(n): 10 for n in range(10)})
    if model:
        with pytest.raises(IntegrityError, match="not held"):
            pins.check({})


@given(st.lists(st.tuples(NUMBERS, st.one_of(st.none(), st.integers(0, 100)), st.booleans())))
def test_expiries_equal_a_dict(steps: list[tuple[int, int | None, bool]]) -> None:
    expiries, model = Expiries(), dict[int, float]()
    for now, (n, end, forget) in enumerate(steps):
        if forget:
            expiries.forget(make_key(n))
            model.pop(n, None)
        else:
            expiries.set(make_key(n), end)
            model.pop(n, None)
            if end is not None:
                model[n] = end
        over = {n for n, end in model.items() if end <= now}
        assert {*expiries.over(now)} == {make_key(n) for n in over}
        for n in over:
            del model[n]
        assert len(expiries) == len(model)


def test_replaced_ends_do_not_pile_up() -> None:
    expiries = Expiries()
    for n in range(100_000):
        expiries.set(make_key(n % 10), float(n))
    assert len(expiries._heap) < 200
    assert [*expiries.over(1e9)] != []
