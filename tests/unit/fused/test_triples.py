"""Cutting a cross-attention map into triples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mmcache.fused import Triple, triples
from mmcache.model.errors import InvalidInputError

Maps = npt.NDArray[np.float32]

maps = arrays(np.float32, array_shapes(min_dims=3, max_dims=3, max_side=6), elements=st.sampled_from([0, 1, 2, 5, 9]))
shares = st.floats(0.05, 1.0)


def words_of(attention: Maps) -> list[str]:
    return [f"word{place}" for place in range(len(attention))]


def two_things() -> Maps:
    """A cat at the upper left, a mat below, touching it; `the` looks everywhere."""
    found = np.full((4, 8, 8), 0.001, np.float32)
    found[0] = 1
    found[1, 0:4, 0:4] = 1
    found[2] = 1
    found[3, 4:6, 0:8] = 1
    return found


def test_two_words_that_look_at_two_things_give_two_triples() -> None:
    found = triples(two_things(), ["the", "cat", "the", "mat"], (80, 40), threshold=0.5)
    assert [(one.span, one.region.box) for one in found] == [("cat", (0, 0, 40, 20)), ("mat", (0, 20, 80, 30))]
    assert all(0.9 < one.score <= 1 for one in found)


def test_adjacent_words_that_look_alike_are_one_span() -> None:
    attention = two_things()
    attention[2] = attention[1]
    found = triples(attention, ["a", "black", "cat", "mat"], (8, 8), threshold=0.5)
    assert (found[0].span, found[0].words) == ("black cat", range(1, 3))


def test_two_areas_of_one_word_are_two_triples() -> None:
    attention = np.zeros((1, 3, 5), np.float32)
    attention[0, 1, 0], attention[0, :, 4] = 4, 1
    found = triples(attention, ["dots"], (50, 30), threshold=0.2)
    assert [one.cells for one in found] == [((1, 0),), ((0, 4), (1, 4), (2, 4))]
    assert [one.score for one in found] == pytest.approx([4 / 7, 3 / 7])
    assert triples(attention, ["dots"], (50, 30), threshold=0.2, least_score=0.5) == found[:1]


def test_cells_that_touch_at_a_corner_only_are_two_regions() -> None:
    assert len(triples(np.eye(2, dtype=np.float32)[None], ["x"], (2, 2))) == 2


def test_a_picture_smaller_than_the_map_still_has_regions_of_a_pixel() -> None:
    attention = np.zeros((1, 16, 16), np.float32)
    attention[0, 15, 15] = 1
    assert triples(attention, ["x"], (3, 1))[0].region.box == (2, 0, 3, 1)


def test_words_that_look_nowhere_give_no_triple() -> None:
    assert triples(np.zeros((2, 4, 4), np.float32), ["a", "b"], (9, 9)) == []


def test_huge_and_tiny_weights_are_weights_too() -> None:
    for scale in (1e-300, 1e300):
        attention = two_things().astype(np.float64) * scale
        spans = [one.span for one in triples(attention, ["the", "cat", "the", "mat"], (8, 8), threshold=0.5)]
        assert spans == ["cat", "mat"]


def joined(cells: set[tuple[int, int]]) -> bool:
    """Whether they hang together by edges."""
    waiting, left = [min(cells)], set(cells)
    while waiting:
        row, column = waiting.pop()
        left.discard((row, column))
        sides = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        waiting += [side for side in sides if side in left]
    return not left


@given(maps, shares, shares)
@settings(max_examples=150)
def test_regions_are_connected_over_the_threshold_and_disjoint(attention: Maps, threshold: float, near: float) -> None:
    size = attention.shape[2] * 7, attention.shape[1] * 5
    found = triples(attention, words_of(attention), size, threshold=threshold, near=near)
    sums = attention.sum(axis=(1, 2), dtype=np.float64, keepdims=True)
    per_word = np.divide(attention, sums, out=np.zeros(attention.shape), where=sums > 0)
    largest = per_word.max(axis=0)
    seen = set[tuple[int, int]]()
    for one in found:
        cells = set(one.cells)
        assert joined(cells)
        assert not seen & cells
        seen |= cells
        assert all(largest[cell] >= threshold * largest.max() * (1 - 1e-9) for cell in cells)
        assert 0 <= one.score <= 1
        assert 0 <= one.words.start < one.words.stop <= len(attention)
        left, upper, right, lower = one.region.box
        assert (left, upper) == (min(c for _, c in cells) * 7, min(r for r, _ in cells) * 5)
        assert (right, lower) == ((max(c for _, c in cells) + 1) * 7, (max(r for r, _ in cells) + 1) * 5)
    assert bool(found) == bool(attention.any())
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@given(maps, shares, st.integers(-20, 20))
def test_scaling_a_words_map_changes_nothing(attention: Maps, threshold: float, power: int) -> None:
    scaled = attention.copy()
    scaled[0] *= 2.0**power
    once: list[Triple] = triples(attention, words_of(attention), (64, 64), threshold=threshold)
    assert triples(scaled, words_of(attention), (64, 64), threshold=threshold) == once


@given(maps, shares)
def test_a_higher_threshold_keeps_fewer_cells(attention: Maps, threshold: float) -> None:
    def kept(at: float) -> set[tuple[int, int]]:
        return {cell for one in triples(attention, words_of(attention), (64, 64), threshold=at) for cell in one.cells}

    assert kept(1.0) <= kept(threshold)


GOOD = np.ones((2, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("attention", "words", "size", "options"),
    [
        (np.full((2, 3, 3), np.nan, np.float32), ["a", "b"], (9, 9), {}),
        (np.full((2, 3, 3), np.inf, np.float32), ["a", "b"], (9, 9), {}),
        (-GOOD, ["a", "b"], (9, 9), {}),
        (GOOD[:0], [], (9, 9), {}),
        (GOOD[:, :0], ["a", "b"], (9, 9), {}),
        (GOOD[0], ["a", "b", "c"], (9, 9), {}),
        (GOOD.astype(np.int64), ["a", "b"], (9, 9), {}),
        (GOOD, ["a"], (9, 9), {}),
        (GOOD, "ab", (9, 9), {}),
        (GOOD, ["a", ""], (9, 9), {}),
        (GOOD, ["a", "b"], (0, 9), {}),
        (GOOD, ["a", "b"], (9, 9), {"threshold": 0.0}),
        (GOOD, ["a", "b"], (9, 9), {"threshold": 1.1}),
        (GOOD, ["a", "b"], (9, 9), {"threshold": float("nan")}),
        (GOOD, ["a", "b"], (9, 9), {"near": 0.0}),
        (GOOD, ["a", "b"], (9, 9), {"least_score": -0.1}),
    ],
)
def test_bad_input_is_refused(
    attention: Maps, words: list[str], size: tuple[int, int], options: dict[str, float]
) -> None:
    with pytest.raises(InvalidInputError):
        triples(attention, words, size, **options)
