"""Thresholds, F1 and average precision, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcache.lab.hotkeys_judged import best_threshold, f1, judge


def test_f1() -> None:
    assert f1([True, True, False], [True, False, True]) == 0.5
    assert f1([False], [True]) == f1([False], [False]) == 0.0


def test_the_best_threshold() -> None:
    assert best_threshold([1.0, 2.0, 3.0, 4.0], [False, False, True, True]) == 3.0
    assert best_threshold([1.0, 1.0, 1.0], [False, True, True]) == 1.0
    assert best_threshold([1.0], [False]) == math.inf


def test_the_threshold_is_of_the_span_before_and_the_finding_of_the_last() -> None:
    scores = np.array([1.0, 2.0, 3.0, 4.0, 1.5, 2.5, 3.5, 9.0])
    true = np.array([False, False, True, True, False, True, True, False])
    found = judge(scores, true, np.arange(4), np.arange(4, 8))
    assert (found.precision, found.recall) == (0.5, 0.5)  # from 3 on
    assert found.f1 == 0.5
    assert found.average_precision == pytest.approx((1 / 2 + 2 / 3) / 2)
    none = judge(scores, np.zeros(8, np.bool_), np.arange(4), np.arange(4, 8))
    assert (none.f1, none.precision, none.recall, none.average_precision) == (0.0, 0.0, 0.0, 0.0)
