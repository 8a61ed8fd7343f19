"""The parts of the ranking: a curve that falls with similarity, and thresholds of neighbourhoods."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.calibration.curve import FAINT, Curve
from mmcache.calibration.distance import BINS, comparable, group, nearness, text_bin
from mmcache.calibration.evidence import Evidence
from mmcache.calibration.thresholds import GRID, Prior, predict, score, update
from mmcache.likeness.base import Likeness, Nearness, WordDifference

COUNTS = st.lists(st.floats(0, 1000), min_size=BINS, max_size=BINS)


@given(COUNTS, COUNTS, st.floats(0.001, 0.999))
def test_the_curve_falls_with_similarity_and_keeps_the_sum(
    right: list[float], wrong: list[float], parent: float
) -> None:
    curve = Curve(right, wrong)
    curve.fit(parent)
    assert len(curve.values) == BINS
    assert all(0 < value < 1 for value in curve.values)
    assert all(one >= next_ - 1e-12 for one, next_ in zip(curve.values, curve.values[1:], strict=False))
    fitted = sum(value * (r + w + FAINT) for value, r, w in zip(curve.values, right, wrong, strict=True))
    assert fitted == pytest.approx(sum(wrong) + BINS * FAINT * parent)


def test_a_curve_that_falls_already_is_left_as_it_is() -> None:
    wrong = [float(BINS - place) for place in range(BINS)]
    curve = Curve([100.0 - w for w in wrong], wrong)
    curve.fit(0.5)
    assert curve.values == pytest.approx([w / 100 for w in wrong], rel=0.05)


@given(st.floats(0, 1), st.lists(st.booleans(), max_size=50))
def test_a_posterior_stays_one_and_never_gives_up_a_hypothesis(general: float, outcomes: list[bool]) -> None:
    prior, place = Prior(), score(general)
    weights = prior.weights
    for right in outcomes:
        weights = update(weights, prior, place, right)
        prior.follow(weights, 3.0, 1.0)
    for weigh in (weights, prior.weights):
        assert len(weigh) == len(GRID)
        assert sum(weigh) == pytest.approx(1)
        assert min(weigh) > 0
    assert 0 < predict(weights, place) < 1


def test_a_neighbourhood_finds_its_threshold_in_few_outcomes() -> None:
    prior, weights = Prior(), Prior().weights
    before = predict(weights, score(0.3))
    for _ in range(12):
        weights = update(weights, prior, score(0.3), right=True)
    assert predict(weights, score(0.3)) < 0.1 * before
    assert predict(weights, score(0.02)) < predict(weights, score(0.3)) < predict(weights, score(0.9))


def test_parts_that_are_not_alike_or_no_number_are_not_compared() -> None:
    fine = Likeness(b"a" * 16, b"b" * 16, 0.5)
    assert comparable(fine)
    for text in (float("nan"), float("inf"), -2.0):
        assert not comparable(Likeness(b"a" * 16, b"b" * 16, text))
    assert not comparable(Likeness(b"a" * 16, b"b" * 16, 0.5, picture=Nearness.UNLIKE))


def test_bins_rise_with_similarity_and_groups_differ() -> None:
    bins = [text_bin(Likeness(b"a" * 16, b"b" * 16, step / 1000)) for step in range(-1000, 1001)]
    assert bins == sorted(bins)
    assert (bins[0], text_bin(Likeness(b"a" * 16, b"a" * 16, 1.0))) == (0, BINS - 1)
    groups = {
        group(one, nearness(one))
        for near in (Nearness.SAME, Nearness.REENCODED, Nearness.TRIMMED)
        for sound in (Nearness.SAME, Nearness.REENCODED, Nearness.TRIMMED)
        for words in range(64)
        for one in [Likeness(b"a" * 16, b"b" * 16, 0.5, WordDifference(words), near, sound)]
    }
    assert len(groups) == 9 * 64


def test_what_was_checked_stands_for_what_was_served() -> None:
    """Of requests that are all alike 2 % are wrong; those of known neighbourhoods are seen one in twenty only."""
    estimates = []
    for stands_for in (1.0, 20.0):
        evidence, rng = Evidence(neighbourhoods=100, window=200), random.Random(1)
        for n in range(6000):
            known = n % 2
            if known and rng.random() > 0.05:
                continue
            stored = bytes([1 if known else 2] * 16)
            likeness = Likeness(rng.randbytes(16), stored, 0.9)
            evidence.learn(likeness, not (not known and rng.random() < 0.04), False, stands_for if known else 1.0)
        estimates.append(evidence.curves[0].values[text_bin(likeness)])
    assert estimates[0] == pytest.approx(0.04, rel=0.3), "as bad as what is not served"
    assert estimates[1] == pytest.approx(0.02, rel=0.4)
