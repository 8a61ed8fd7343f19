"""`Ranked` against sorting everything anew each time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.ranked import ENTROPIES, Ranked, Score, Tracked
from mmcache.policies.window import UseWindow
from mmcache.testing import PolicyContract, make_key

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "touch", "touch", "touch", "drop"]),
        st.integers(0, 6),
        st.sampled_from([0.0, 0.0, 0.5, 1.0, 4.0]),
        st.none() | st.floats(0, 5),
    ),
    max_size=80,
)


class Naive:
    """The definition, in O(n log n) a question and O(all uses) a count."""

    def __init__(self, score: Score, passes: int | None = None, seconds: float = math.inf) -> None:
        self.score, self.passes, self.seconds = score, passes, seconds
        self.uses: list[tuple[Key, float]] = []
        self.known: dict[Key, Tracked] = {}
        self.since: dict[Key, tuple[float, int]] = {}
        """Of blocks without a use in a window, or without a window: the score, and since when they have it."""
        self.events = 0

    def call(self, call: str, key: Key, facts: Facts, now: float) -> None:
        if call == "drop":
            self.known.pop(key, None)
            self.since.pop(key, None)
        elif call == "touch" and key in self.known:
            self.use(key, now)
        elif call == "add":
            new = key not in self.known
            block = self.known.setdefault(key, Tracked(facts))
            block.facts = facts
            block.entropies = (*block.entropies, *([] if facts.entropy is None else [facts.entropy]))[-ENTROPIES:]
            if new:
                self.use(key, now)
        self.settle(now)

    def use(self, key: Key, now: float) -> None:
        self.uses.append((key, now))
        block = self.known[key]
        block.order, block.last, block.uses = len(self.uses), now, block.uses + 1
        self.since.pop(key, None)

    def settle(self, now: float) -> None:
        for key, block in sorted(self.known.items(), key=lambda one: one[1].order):
            if self.passes is not None:
                last = self.uses[-self.passes :]
                block.uses = sum(used == key and now - at <= self.seconds for used, at in last)
            score = self.score(block, now)
            if (self.passes is None or not block.uses) and (key not in self.since or self.since[key][0] != score):
                self.events += 1
                self.since[key] = score, self.events

    def victims(self, now: float) -> list[Key]:
        self.settle(now)

        def rank(key: Key) -> tuple[float, bool, int]:
            block = self.known[key]
            here = self.passes is not None and block.uses > 0
            return self.score(block, now), here, block.order if here else self.since[key][1]

        return sorted(self.known, key=rank)


def by_uses(block: Tracked, now: float) -> float:
    return block.uses


def by_value(block: Tracked, now: float) -> float:
    return block.facts.cost * block.uses / block.facts.size - sum(block.entropies)


def fading(block: Tracked, now: float) -> float:
    return block.uses * math.exp(block.last - now) + block.uses


def replay(policy: Ranked, naive: Naive, calls: list[tuple[str, int, float, float | None]]) -> None:
    now = 0.0
    for call, n, pause, entropy in calls:
        now += pause
        facts = Facts(1 + n, cost=pause, entropy=entropy)
        naive.call(call, make_key(n), facts, now)
        match call:
            case "add":
                policy.add(make_key(n), facts, now)
            case "touch":
                policy.touch(make_key(n), now)
            case _:
                policy.drop(make_key(n))
        assert list(policy.victims(now)) == naive.victims(now)
        assert list(policy.victims(now + 3.0)) == naive.victims(now + 3.0)
        now += 3.0


@given(CALLS, st.sampled_from([by_uses, by_value]))
def test_a_score_without_time(calls: list[tuple[str, int, float, float | None]], score: Score) -> None:
    replay(Ranked(score), Naive(score), calls)


@given(CALLS, st.sampled_from([by_uses, by_value]), st.integers(1, 12), st.sampled_from([2.0, 8.0, math.inf]))
def test_a_score_over_a_window(
    calls: list[tuple[str, int, float, float | None]], score: Score, passes: int, seconds: float
) -> None:
    replay(Ranked(score, window=UseWindow(passes, seconds)), Naive(score, passes, seconds), calls)


@given(CALLS, st.integers(1, 12), st.sampled_from([2.0, 8.0, math.inf]), st.booleans())
def test_a_score_that_fades(
    calls: list[tuple[str, int, float, float | None]], passes: int, seconds: float, bounded: bool
) -> None:
    least: Callable[[int, float], float] = (lambda uses, now: uses) if bounded else (lambda uses, now: -math.inf)
    policy = Ranked(fading, window=UseWindow(passes, seconds), group=lambda block: block.uses, least=least)
    replay(policy, Naive(fading, passes, seconds), calls)


class TestRankedByValue(PolicyContract):
    def make_policy(self) -> Ranked:
        return Ranked(by_value)


class TestRankedThatFades(PolicyContract):
    def make_policy(self) -> Ranked:
        return Ranked(fading, window=UseWindow(30, 100.0), group=lambda block: block.uses)


def test_only_distinct_scores_are_kept_in_order() -> None:
    policy = Ranked(by_uses)
    for n in range(1000):
        policy.add(make_key(n), Facts(1), 0.0)
    for n in range(1000):
        for _ in range(n % 3):
            policy.touch(make_key(n), 1.0)
    assert sorted(policy._heap) == [1, 2, 3]


def test_scores_that_no_block_has_any_more_are_forgotten() -> None:
    policy = Ranked(lambda block, now: float(block.order))
    for n in range(5000):
        policy.add(make_key(n % 20), Facts(1), 0.0)
    assert len(policy._heap) <= 2 * 20 + 65
    assert len(list(policy.victims(0.0))) == 20


def test_why() -> None:
    policy = Ranked(by_value)
    policy.add(make_key(1), Facts(2, cost=3.0), 0.0)
    assert policy.explain(make_key(1), 0.0) == {"uses": 1.0, "score": 1.5}
    assert policy.explain(make_key(2), 0.0) == {}


@pytest.mark.parametrize(("passes", "seconds"), [(0, 1.0), (5, 0.0), (5, -1.0), (5, math.nan)])
def test_a_window_must_hold_something(passes: int, seconds: float) -> None:
    with pytest.raises(SettingsError):
        UseWindow(passes, seconds)
