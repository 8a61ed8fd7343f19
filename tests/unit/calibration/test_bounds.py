"""Intervals cover as often as they say, at a fixed number of outcomes or at all times at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.calibration.bounds import ServedBound, clopper_pearson, confidence_sequence


def test_clopper_pearson_of_known_cases() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert clopper_pearson(10, 10) == pytest.approx((0.025**0.1, 1.0))
    assert clopper_pearson(3, 20, 0.9) == pytest.approx((0.0421694, 0.3436644), abs=1e-5)
    with pytest.raises(ValueError):
        clopper_pearson(2, 1)


@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.999]))
def test_clopper_pearson_is_that_of_scipy(seen: int, share: float, confidence: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    wrong = round(share * seen)
    theirs = stats.binomtest(wrong, seen).proportion_ci(confidence, method="exact")
    assert clopper_pearson(wrong, seen, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_a_confidence_sequence_is_an_interval_around_the_share(seen: int, share: float) -> None:
    wrong = round(share * seen)
    low, high = confidence_sequence(wrong, seen)
    assert 0 <= low <= high <= 1
    if seen:
        assert low - 1e-9 <= wrong / seen <= high + 1e-9
        assert clopper_pearson(wrong, seen)[1] <= high + 1e-9, "all times at once cost something"


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_a_confidence_sequence_covers_at_all_times(rate: float) -> None:
    rng, missed = random.Random(2), 0
    for _ in range(200):
        wrong = 0
        for seen in range(1, 401):
            wrong += rng.random() < rate
            if seen % 8 == 0:
                low, high = confidence_sequence(wrong, seen, 0.1)
                if not low <= rate <= high:
                    missed += 1
                    break
    assert missed <= 30, "10 % of 200, and three standard deviations"


def test_the_bound_on_hits_covers_whatever_the_order() -> None:
    missed = 0
    for seed in range(150):
        rng, bound, total = random.Random(seed), ServedBound(0.2), 0.0
        for hit in range(1, 601):
            wrong = 0.5 if (hit // 50) % 4 == seed % 4 else 0.01
            share = 0.2 if hit % 3 else 0.6
            total += wrong
            checked = rng.random() < share
            bound.hit(share, wrong=checked and rng.random() < wrong)
            if hit % 50 == 0 and bound.upper(0.1) < total / hit:
                missed += 1
                break
    assert missed <= 26


def test_the_bound_on_hits_falls_as_hits_come_in_and_rises_with_what_is_caught() -> None:
    bound = ServedBound(0.05)
    assert bound.upper() == 1.0
    uppers = []
    for _ in range(5):
        for _ in range(2000):
            bound.hit()
        uppers.append(bound.upper())
    assert uppers == sorted(uppers, reverse=True)
    assert 0.005 < uppers[-1] < 0.02
    bound.hit(0.05, wrong=True)
    assert bound.upper() > uppers[-1]
