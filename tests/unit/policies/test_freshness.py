"""Heat × freshness against its formula."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.freshness import HeatFreshness
from mmcache.testing import make_key

CALLS = st.lists(
    st.tuples(st.sampled_from(["add", "touch", "touch", "drop"]), st.integers(0, 6), st.sampled_from([0.0, 1.0, 20.0])),
    max_size=70,
)


class Naive:
    """The formula, and counting everything anew."""

    def __init__(self, alpha: float, tau: float, seconds: float, events: int) -> None:
        self.alpha, self.tau, self.seconds, self.events = alpha, tau, seconds, events
        self.uses: list[tuple[Key, float]] = []
        self.last: dict[Key, tuple[float, int]] = {}

    def use(self, key: Key, now: float) -> None:
        self.uses.append((key, now))
        self.last[key] = now, len(self.uses)

    def window(self, now: float) -> list[Key]:
        return [key for key, at in self.uses[-self.events :] if now - at <= self.seconds]

    def score(self, key: Key, now: float) -> float:
        window = self.window(now)
        uses = window.count(key)
        fresh = math.exp(-(now - self.last[key][0]) / self.tau)
        if not uses:
            return (1 - self.alpha) * fresh  # H = -inf
        heat = math.log(uses / (len(window) / len(set(window))))
        return self.alpha / (1 + math.exp(-heat)) + (1 - self.alpha) * fresh


def used(policy: HeatFreshness, *uses: tuple[int, float]) -> None:
    """Blocks by number, and when they are used; stored with the first use."""
    for place, (n, now) in enumerate(uses):
        if n in {other for other, _ in uses[:place]}:
            policy.touch(make_key(n), now)
        else:
            policy.add(make_key(n), Facts(1), now)


@given(CALLS, st.sampled_from([0.0, 0.5, 0.7, 1.0]), st.sampled_from([5.0, 100.0]), st.integers(1, 15))
def test_equals_its_formula(calls: list[tuple[str, int, float]], alpha: float, tau: float, events: int) -> None:
    policy, naive, now = (
        HeatFreshness(alpha=alpha, tau=tau, seconds=50.0, events=events),
        Naive(alpha, tau, 50.0, events),
        0.0,
    )
    for call, n, pause in calls:
        now += pause
        key = make_key(n)
        match call:
            case "add":
                policy.add(key, Facts(1), now)
                if key not in naive.last:
                    naive.use(key, now)
            case "touch":
                policy.touch(key, now)
                if key in naive.last:
                    naive.use(key, now)
            case _:
                policy.drop(key)
                naive.last.pop(key, None)
        order = list(policy.victims(now))
        assert set(order) == set(naive.last)
        scores = [naive.score(key, now) for key in order]
        assert scores == pytest.approx(sorted(scores), abs=1e-12)
        assert scores == pytest.approx([policy.explain(key, now)["score"] for key in order], abs=1e-12)


def test_equal_scores_are_ordered_by_last_use() -> None:
    policy = HeatFreshness(alpha=1.0)
    for n in (3, 1, 2):
        policy.add(make_key(n), Facts(1), 0.0)
    assert list(policy.victims(9.0)) == [make_key(3), make_key(1), make_key(2)]


def test_the_window_ends_with_time_alone() -> None:
    policy = HeatFreshness(seconds=300.0, tau=1e9)
    used(policy, *[(1, 0.0)] * 5, (2, 10.0))
    assert next(policy.victims(300.0)) == make_key(2)
    assert next(policy.victims(301.0)) == make_key(1)


def test_a_fitted_tau_may_come_at_any_time() -> None:
    policy = HeatFreshness(alpha=0.3, tau=3600.0, seconds=300.0)
    used(policy, *[(1, 0.0)] * 3, (2, 290.0))
    assert next(policy.victims(300.0)) == make_key(2)
    policy.tau = 20.0
    assert next(policy.victims(300.0)) == make_key(1)
    with pytest.raises(SettingsError):
        policy.tau = 0.0


def test_a_forecast_corrects_the_counts_it_finds() -> None:
    policy = HeatFreshness()
    used(policy, *[(1, 0.0)] * 3, (2, 0.0))
    assert next(policy.victims(0.0)) == make_key(2)
    policy.foresee({make_key(1): 0.2, make_key(2): 6.0, make_key(9): 3.0})
    assert next(policy.victims(0.0)) == make_key(1)
    assert policy.explain(make_key(2), 0.0)["forecast"] == pytest.approx(6.0)
    policy.touch(make_key(2), 1.0)
    assert policy.explain(make_key(2), 1.0)["forecast"] == pytest.approx(7.0)
    policy.foresee({})
    assert next(policy.victims(2.0)) == make_key(2)


def test_a_forecast_that_nobody_renews_is_forgotten() -> None:
    policy = HeatFreshness(seconds=300.0)
    used(policy, (1, 0.0), (1, 200.0), (1, 200.0), (2, 200.0))
    policy.foresee({make_key(2): 50.0})
    assert next(policy.victims(210.0)) == make_key(1)
    policy.touch(make_key(1), 505.0)
    policy.touch(make_key(2), 505.0)
    assert policy.explain(make_key(2), 511.0)["forecast"] == policy.explain(make_key(2), 511.0)["uses"]


def test_what_the_window_has_forgotten_has_no_forecast() -> None:
    policy = HeatFreshness(seconds=300.0)
    policy.add(make_key(1), Facts(1), 0.0)
    policy.foresee({make_key(1): 9.0})
    assert policy.explain(make_key(1), 299.0)["heat"] == pytest.approx(0.9)
    assert policy.explain(make_key(1), 301.0)["heat"] == 0.0


@given(CALLS, st.lists(st.floats(0, 10), min_size=7, max_size=7))
def test_with_a_forecast_every_block_is_still_a_victim_once(
    calls: list[tuple[str, int, float]], uses: list[float]
) -> None:
    policy, known, now = HeatFreshness(seconds=50.0, events=10), set[Key](), 0.0
    for place, (call, n, pause) in enumerate(calls):
        now += pause
        key = make_key(n)
        if place % 5 == 0:
            policy.foresee({make_key(number): value for number, value in enumerate(uses[place % 7 :])})
        match call:
            case "add":
                policy.add(key, Facts(1), now)
                known.add(key)
            case "touch":
                policy.touch(key, now)
            case _:
                policy.drop(key)
                known.discard(key)
        order = list(policy.victims(now))
        assert sorted(order) == sorted(known)
        assert [policy.explain(key, now)["score"] for key in order] == sorted(
            policy.explain(key, now)["score"] for key in order
        )


@pytest.mark.parametrize(
    "settings", [{"alpha": 1.1}, {"alpha": -0.1}, {"tau": 0.0}, {"tau": math.inf}, {"seconds": 0.0}]
)
def test_settings_out_of_bounds(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        HeatFreshness(**settings)  # type: ignore[arg-type]
