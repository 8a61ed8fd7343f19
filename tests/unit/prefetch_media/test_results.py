"""What models answer, made plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media import results
from mmcache.prefetch.media.results import MOST_REGIONS


def test_boxes_are_cut_to_the_picture() -> None:
    found = np.array([[-5, -5, 20, 10], [90, 40, 50, 50], [200, 0, 5, 5], [1, 1, 0, 4], [-5, -5, 20, 10]])
    assert results.boxes(found, (100, 50)) == [(0, 0, 15, 5), (90, 40, 10, 10)]
    assert results.boxes([], (100, 50)) == []
    assert results.boxes([(1.4, 1.6, 3, 4)], (100, 50)) == [(1, 2, 3, 4)]
    many = [(n % 90, n // 90, 2, 2) for n in range(2000)]
    assert len(results.boxes(many, (100, 50))) == MOST_REGIONS


@pytest.mark.parametrize("found", ["text", [1, 2, 3], [[1, 2, 3, float("nan")]], [[1, 2, 3, 1e300]], object()])
def test_what_are_no_boxes(found: Any) -> None:
    with pytest.raises(InvalidInputError):
        results.boxes(found, (100, 50))


def test_spans_come_in_order_and_apart() -> None:
    assert results.spans([[500, 900], [-20, 100], [80, 200], [950, 3000], [700, 650]], 1000) == [
        (0, 100), (100, 200), (500, 900), (950, 1000),
    ]  # fmt: skip
    assert results.spans(np.zeros((0, 2)), 1000) == []


def test_words() -> None:
    assert results.words(" a b ") == ("a b", 1.0)
    assert results.words({"text": "a", "score": np.float32(0.5)}) == ("a", 0.5)
    assert results.words({"text": "a", "score": 7}) == ("a", 1.0)
    for nothing in ({}, {"text": 1}, 3, None, {"text": "a", "score": "high"}):
        with pytest.raises(InvalidInputError):
            results.words(nothing)


def test_bytes_of_results() -> None:
    assert results.nbytes({"a": np.zeros((2, 3), np.float32), "b": ["é", 1, (2.0,)]}) == 24 + 2 + 8 + 8
