"""Hot, turning hot, and thresholds, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcache.hotkeys.turning import best_threshold, f1, hot, turns_hot
from mmcache.model.errors import InvalidInputError


def test_the_most_used_and_who_ties_with_them_are_hot() -> None:
    assert hot([5, 1, 1, 1, 1, 1, 1, 1, 1, 1]).tolist() == [True] + 9 * [False]
    assert hot([5, 5, 1, 1, 1, 1, 1, 1, 1, 1]).tolist() == 2 * [True] + 8 * [False]
    assert not hot(np.zeros(20)).any()
    assert hot([]).tolist() == []


def test_turning_is_being_hot_then_and_not_now() -> None:
    assert turns_hot([9, 0, 1], [9, 8, 1], share=0.5).tolist() == [False, True, False]


def test_what_are_no_uses() -> None:
    for uses in ([-1.0], [float("nan")], [[1.0]]):
        with pytest.raises(InvalidInputError):
            hot(uses)
    with pytest.raises(InvalidInputError):
        hot([1.0], share=0.0)


def test_f1() -> None:
    assert f1([True, True, False], [True, False, True]) == 0.5
    assert f1([False], [True]) == f1([False], [False]) == 0.0


def test_the_best_threshold() -> None:
    assert best_threshold([1.0, 2.0, 3.0, 4.0], [False, False, True, True]) == 3.0
    assert best_threshold([1.0, 1.0, 1.0], [False, True, True]) == 1.0
    assert best_threshold([1.0], [False]) == math.inf
