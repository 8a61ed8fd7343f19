"""Tolerances: given, refused, learned."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.model.errors import SettingsError
from mmcache.retrieval import Observation, Tolerance
from mmcache.retrieval.tolerance import interval


def seen(count: int, low: float, wrong_below: float, seed: int = 0) -> list[Observation]:
    """Equal words; pictures between `low` and 1, wrong below a cosine."""
    cosines = np.random.default_rng(seed).uniform(low, 1, count)
    return [Observation(float(one), 1.0, bool(one < wrong_below)) for one in cosines]


@pytest.mark.parametrize("bad", [0.0, -0.5, 1.01, float("nan"), True, "0.9"])
def test_what_is_no_cosine_is_refused(bad: float) -> None:
    with pytest.raises(SettingsError):
        Tolerance(bad, 0.9)
    with pytest.raises(SettingsError):
        Tolerance(0.9, bad)


def test_both_gates_must_pass() -> None:
    tolerance = Tolerance(0.9, 0.8)
    assert tolerance.allows(0.9, 0.8)
    assert not tolerance.allows(0.89, 1.0)
    assert not tolerance.allows(1.0, 0.79)


def test_too_few_observations_open_nothing() -> None:
    assert Tolerance.learned([]) is None
    assert Tolerance.learned(seen(100, 0.9, 0.0)) is None


def test_the_gates_open_as_far_as_outcomes_are_right() -> None:
    found = Tolerance.learned(seen(4000, 0.5, 0.8))
    assert found is not None
    assert 0.78 <= found.picture <= 0.85
    assert found.text == 1.0  # other words were never seen
    found = Tolerance.learned([Observation(1.0, one.picture, one.wrong) for one in seen(4000, 0.5, 0.9)])
    assert found is not None
    assert 0.88 <= found.text <= 0.95
    assert found.picture == 1.0


def test_what_lies_inside_both_gates_is_what_was_tested() -> None:
    random = np.random.default_rng(0)
    both = [
        Observation(float(picture), float(text), bool(min(picture, text) < 0.8))
        for picture, text in random.uniform(0.5, 1, (6000, 2))
    ]
    found = Tolerance.learned(both, most_wrong=0.05)
    assert found is not None
    inside = [one for one in both if found.allows(one.picture, one.text)]
    assert sum(one.wrong for one in inside) / len(inside) < 0.05
    assert 0.77 <= min(found.picture, found.text) <= 0.81


def test_what_is_bad_does_not_hide_behind_the_good() -> None:
    good = [Observation(0.98, 0.98, False)] * 900
    bad = [Observation(0.7, 0.7, number % 2 == 0) for number in range(40)]  # 20 of 940: within 5 % of all
    assert Tolerance.learned([*good, *bad], most_wrong=0.05) == Tolerance(0.98, 0.98)


def test_it_begins_where_half_the_share_would_pass() -> None:
    right = [Observation(0.995, 0.995, False)]
    assert Tolerance.learned(right * 152, most_wrong=0.05) is None
    assert Tolerance.learned(right * 153, most_wrong=0.05) == Tolerance(0.995, 0.995)


def test_wrong_everywhere_opens_nothing() -> None:
    assert Tolerance.learned([Observation(0.99, 0.99, True)] * 500) is None


def test_the_promise_is_kept_as_often_as_it_says() -> None:
    """Outcomes that get worse evenly: what was learned may be beyond the share in one run of twenty, no more."""
    broken = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        cosines = random.uniform(0.5, 1, 1500)
        wrong = random.random(1500) < (1 - cosines) * 0.2  # below 0.6 more than 5 % of all are wrong
        found = Tolerance.learned(
            [Observation(float(c), 1.0, bool(w)) for c, w in zip(cosines, wrong, strict=True)], most_wrong=0.05
        )
        if found is not None:
            broken += (1 - found.picture) / 2 * 0.2 > 0.05
    assert broken <= 200 * 0.05


@pytest.mark.parametrize("bad", [0.0, 1.0, -1.0])
def test_shares_are_checked(bad: float) -> None:
    with pytest.raises(SettingsError):
        Tolerance.learned([], most_wrong=bad)
    with pytest.raises(SettingsError):
        Tolerance.learned([], confidence=bad)


@pytest.mark.parametrize(
    ("wrong", "count", "low", "high"), [(0, 100, 0.0, 0.0362), (5, 100, 0.0164, 0.1128), (3, 3, 0.2924, 1.0)]
)
def test_the_interval_is_clopper_and_pearsons(wrong: int, count: int, low: float, high: float) -> None:
    assert interval(wrong, count) == pytest.approx((low, high), abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)
