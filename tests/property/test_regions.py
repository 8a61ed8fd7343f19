"""Recipes against real rendering: what renders the same pixels by composition has one id; other geometry never."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmcache.keys.region import FILTERS, Region
from mmcache.keys.turn import Turn

SALT = bytes(32)
Op = tuple[str, tuple[int, ...]]

numbers = st.integers(0, 1 << 16)
exact = st.one_of(
    st.tuples(st.just("crop"), st.tuples(numbers, numbers, numbers, numbers)),
    st.tuples(st.just("turn"), st.tuples(st.integers(0, 7))),
    st.tuples(st.just("enlarge"), st.tuples(st.integers(1, 3), st.integers(1, 3))),
)
again = st.tuples(st.just("again"), st.tuples(st.integers(1, 6), st.integers(1, 6)))
"""Nearest-neighbour resampling to another multiple of the original's size."""
lossy = st.tuples(st.just("resize"), st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, len(FILTERS) - 1)))


def distinct(width: int, height: int) -> Image.Image:
    """A picture of which no two pixels are equal."""
    place = np.arange(width * height, dtype=np.uint32).reshape(height, width) + 1
    return Image.fromarray(np.stack([place % 251, place // 251, place * 7 % 256], axis=-1).astype(np.uint8))


def box_of(raw: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int, int, int]:
    left, upper = raw[0] % size[0], raw[1] % size[1]
    return left, upper, left + 1 + raw[2] % (size[0] - left), upper + 1 + raw[3] % (size[1] - upper)


def apply(ops: list[Op], width: int, height: int) -> tuple[Region, Image.Image]:
    """The recipe, and the same operations done one after the other by Pillow."""
    region, picture = Region.whole(width, height), distinct(width, height)
    for name, raw in ops:
        if name == "crop":
            box = box_of(raw, picture.size)
            region, picture = region.crop(box), picture.crop(box)
        elif name == "turn":
            turn = Turn(raw[0])
            region = (region.flip_left_right() if turn % 2 else region).rotate90(turn // 2)
            for transpose in turn.transposes:
                picture = picture.transpose(Image.Transpose[transpose])
        elif name in ("enlarge", "again"):
            base = picture.size if name == "enlarge" else (width, height)
            size = base[0] * raw[0], base[1] * raw[1]
            if max(size) <= 60:
                region, picture = region.resize(size, "nearest"), picture.resize(size, Image.Resampling.NEAREST)
        else:
            kind = FILTERS[raw[2]]
            size = raw[0], raw[1]
            region, picture = region.resize(size, kind), picture.resize(size, Image.Resampling[kind.upper()])
    return region, picture


def pixels(picture: Image.Image) -> tuple[tuple[int, int], bytes]:
    return picture.size, picture.tobytes()


sides = st.integers(1, 5)


@settings(max_examples=300, deadline=None)
@given(ops=st.lists(st.one_of(exact, again, lossy), max_size=6), width=sides, height=sides)
def test_rendered_once_equals_every_operation_in_turn(ops: list[Op], width: int, height: int) -> None:
    region, picture = apply(ops, width, height)
    assert region.size == picture.size
    assert pixels(region.render(distinct(width, height))) == pixels(picture)


@settings(max_examples=600, deadline=None)
@given(ops=st.lists(exact, max_size=5), others=st.lists(exact, max_size=5), width=sides, height=sides)
def test_same_pixels_same_id_and_other_pixels_another(ops: list[Op], others: list[Op], width: int, height: int) -> None:
    (one, picture), (two, other) = apply(ops, width, height), apply(others, width, height)
    same = pixels(picture) == pixels(other)
    assert (one.digest(SALT) == two.digest(SALT)) == same
    assert (one.canonical() == two.canonical()) == same
    assert (one == two) == same


@settings(max_examples=200, deadline=None)
@given(ops=st.lists(st.one_of(exact, lossy), max_size=5), width=sides, height=sides, undo=st.integers(0, 7))
def test_a_detour_that_loses_nothing_leaves_no_trace(ops: list[Op], width: int, height: int, undo: int) -> None:
    region, _ = apply(ops, width, height)
    turn = Turn(undo)
    there = (region.flip_left_right() if turn % 2 else region).rotate90(turn // 2)
    back = there.rotate90(-(turn // 2))
    assert (back.flip_left_right() if turn % 2 else back) == region
    w, h = region.size
    assert region.resize((3 * w, 2 * h), "nearest").resize((w, h), "nearest") == region


@given(a=st.sampled_from(Turn), b=st.sampled_from(Turn), raw=st.tuples(numbers, numbers, numbers, numbers))
def test_turns_are_pillows(a: Turn, b: Turn, raw: tuple[int, int, int, int]) -> None:
    def turned(picture: Image.Image, turn: Turn) -> Image.Image:
        for name in turn.transposes:
            picture = picture.transpose(Image.Transpose[name])
        return picture

    picture = distinct(5, 3)
    assert pixels(turned(turned(picture, a), b)) == pixels(turned(picture, a.then(b)))
    assert a.then(a.inverse) is Turn.NONE
    box = box_of(raw, picture.size)
    moved = a.apply(box, picture.size)
    assert pixels(turned(picture.crop(box), a)) == pixels(turned(picture, a).crop(moved))
    assert a.before(moved, picture.size) == box


def test_all_short_chains_of_a_small_picture() -> None:
    """Exhaustively: every chain of up to three exact operations on 3 × 2 pixels; ids and pixels are one to one."""
    start = (Region.whole(3, 2), distinct(3, 2))
    seen = {start[0]: pixels(start[1])}
    owner = {pixels(start[1]): start[0]}
    edge = [start]
    for _ in range(3):
        following = []
        for region, picture in edge:
            for name, raw in moves(picture.size):
                if name == "crop":
                    made, drawn = region.crop(raw), picture.crop(raw)
                elif name == "turn":
                    made, drawn = region.rotate90(), picture.transpose(Image.Transpose.ROTATE_90)
                elif name == "flip":
                    made, drawn = region.flip_left_right(), picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                else:
                    size = raw[0], raw[1]
                    made, drawn = region.resize(size, "nearest"), picture.resize(size, Image.Resampling.NEAREST)
                assert seen.setdefault(made, pixels(drawn)) == pixels(drawn)
                if owner.setdefault(pixels(drawn), made) is made:
                    following.append((made, drawn))
                assert owner[pixels(drawn)] == made
        edge = following
    assert len(seen) == len(owner) > 500


def moves(size: tuple[int, int]) -> list[tuple[str, tuple[int, int, int, int]]]:
    width, height = size
    boxes = [
        (left, upper, right, lower)
        for left in range(width)
        for right in range(left + 1, width + 1)
        for upper in range(height)
        for lower in range(upper + 1, height + 1)
        if (left, upper, right, lower) != (0, 0, width, height) and width * height <= 40
    ]
    larger = [
        (width * x, height * y, 0, 0) for x, y in ((2, 1), (1, 3), (2, 2), (3, 2)) if width * x * height * y < 200
    ]
    return [
        ("turn", (0, 0, 0, 0)),
        ("flip", (0, 0, 0, 0)),
        *(("crop", b) for b in boxes),
        *(("scale", s) for s in larger),
    ]
