"""The parts of the ranking: a curve that falls with similarity, and thresholds of neighbourhoods."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.calibration.curve import Curve
from mmcache.calibration.distance import BINS, comparable, group, nearness, text_bin
from mmcache.calibration.evidence import Evidence
from mmcache.calibration.general import TRUSTED, General
from mmcache.calibration.thresholds import GRID, Prior, predict, score, update
from mmcache.likeness.base import Likeness, Nearness, WordDifference

COUNTS = st.lists(st.floats(0, 1000), min_size=BINS, max_size=BINS)


@given(COUNTS, COUNTS, st.lists(st.floats(0.001, 0.999), min_size=BINS, max_size=BINS), st.floats(0.01, 3))
def test_the_curve_falls_with_similarity_and_keeps_the_sum(
    right: list[float], wrong: list[float], parents: list[float], faint: float
) -> None:
    curve = Curve(right, wrong)
    curve.fit(parents, faint)
    assert len(curve.values) == BINS
    assert all(0 < value < 1 for value in curve.values)
    assert all(one >= next_ - 1e-12 for one, next_ in zip(curve.values, curve.values[1:], strict=False))
    fitted = sum(value * (r + w + faint) for value, r, w in zip(curve.values, right, wrong, strict=True))
    assert fitted == pytest.approx(sum(wrong) + faint * sum(parents))


def test_a_curve_that_falls_already_is_left_as_it_is() -> None:
    wrong = [float(BINS - place) for place in range(BINS)]
    curve = Curve([100.0 - w for w in wrong], wrong)
    curve.fit([0.5] * BINS, 0.05)
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
        estimates.append(evidence.general.curves[0].values[text_bin(likeness)])
    assert estimates[0] == pytest.approx(0.04, rel=0.3), "as bad as what is not served"
    assert estimates[1] == pytest.approx(0.02, rel=0.4)


def texts(asked: int, stored: int, text: float = 0.95, words: int = 0, near: Nearness = Nearness.SAME) -> Likeness:
    return Likeness(asked.to_bytes(16), stored.to_bytes(16), text, WordDifference(words), near)


def test_where_no_words_differ_the_gate_is_trusted_until_it_was_wrong() -> None:
    general, place = General(200), text_bin(texts(1, 2))
    assert general.wrong(0, 0, place) == pytest.approx(TRUSTED)
    assert general.wrong(0, 32, place) == 0.5, "words differ"
    assert general.wrong(1, 64, place) == 0.5, "another picture"
    general.learn(0, 0, place, False, 1.0)
    assert general.wrong(0, 0, place) > 0.3
    assert general.wrong(0, 32, place) == 0.5, "the one says nothing about the other"


def test_a_difference_that_was_seldom_seen_is_judged_by_all_differences() -> None:
    """Ten outcomes of its own are luck; where nine in ten are wrong otherwise, it is not believed yet."""
    general, place, rng = General(200), text_bin(texts(1, 2)), random.Random(1)
    for _ in range(300):
        general.learn(0, 32, place, rng.random() < 0.1, 1.0)
    assert general.wrong(0, 16, place) == pytest.approx(0.9, abs=0.06), "never seen: as all others"
    for _ in range(10):
        general.learn(0, 16, place, True, 1.0)
    assert 0.05 < general.wrong(0, 16, place) < 0.8
    for _ in range(300):
        general.learn(0, 16, place, True, 1.0)
    assert general.wrong(0, 16, place) < 0.1


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 63), st.integers(0, BINS - 1), st.booleans()), max_size=80))
def test_what_is_generally_so_is_a_chance_and_falls_with_similarity(
    outcomes: list[tuple[int, int, int, bool]],
) -> None:
    general = General(50)
    for near, words, place, right in outcomes:
        general.learn(near, near * 64 + words, place, right, 1.0)
    general.fade(0.25)
    for near, words, _, _ in outcomes:
        found = [general.wrong(near, near * 64 + words, place) for place in range(BINS)]
        assert all(0 < one < 1 for one in found)
        assert all(one >= next_ - 1e-12 for one, next_ in pairwise(found))


def learned(*outcomes: tuple[Likeness, bool]) -> Evidence:
    evidence = Evidence(neighbourhoods=100, window=200)
    for likeness, right in outcomes:
        evidence.learn(likeness, right, False)
    return evidence


def test_wordings_that_are_right_for_each_other_are_one_neighbourhood() -> None:
    evidence = learned((texts(2, 1), True), (texts(3, 2), True), (texts(5, 4), False))
    homes = [evidence.home(number.to_bytes(16)) for number in range(1, 6)]
    assert homes == [number.to_bytes(16) for number in (1, 1, 1, 4, 5)]
    before = evidence.weigh(texts(9, 1, words=32)).wrong
    for asked in range(20, 30):
        evidence.learn(texts(asked, 3, words=32), True, False)
    assert evidence.weigh(texts(9, 1, words=32)).wrong < 0.5 * before, "what was seen of one is known of the other"


def test_two_of_a_neighbourhood_that_are_found_to_differ_part_and_stay_apart() -> None:
    evidence = learned((texts(2, 1), True), (texts(3, 1), True), (texts(2, 3), False))
    assert [evidence.home(number.to_bytes(16))[-1] for number in (1, 2, 3)] == [1, 2, 1]
    evidence.learn(texts(2, 1), True, False)
    assert evidence.home((2).to_bytes(16))[-1] == 2, "one answer in common is no longer enough"
    evidence.learn(texts(1, 3), False, False)
    assert evidence.home((3).to_bytes(16))[-1] == 3, "who gave the neighbourhood its name keeps it"


def test_on_near_pictures_each_wording_stays_by_itself() -> None:
    evidence = learned((texts(2, 1, near=Nearness.REENCODED), True), (texts(3, 3, 1.0, near=Nearness.TRIMMED), True))
    assert not evidence.homes


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=120))
def test_homes_are_bounded_and_lead_nowhere_else_at_once(outcomes: list[tuple[int, int, bool]]) -> None:
    evidence = Evidence(neighbourhoods=20, window=200)
    for asked, stored, right in outcomes:
        before = evidence.home(stored.to_bytes(16))
        evidence.learn(texts(asked, stored), right, False)
        assert len(evidence.homes) <= 20
        if not right and asked != stored and len(evidence.homes) < 20:
            assert evidence.home(asked.to_bytes(16)) != evidence.home(stored.to_bytes(16))
        elif right:
            assert evidence.home(stored.to_bytes(16)) == before or len(evidence.homes) == 20
