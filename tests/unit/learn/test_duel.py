"""Two shadows of a cache: who hits more is found out, and a large cache is imitated by a sample."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.learn import duel
from mmcache.learn.duel import PATIENCE, Duel
from mmcache.policies.freshness import HeatFreshness
from mmcache.testing import make_key


def play(one: Duel, steps: int, expected: dict[int, float], blocks: int = 2) -> None:
    """Block 0 comes once a step, last of all; before it, others that never return come three times each."""
    for step in range(steps):
        one.foresee({make_key(n): uses for n, uses in expected.items()} | {make_key(1000 + step): 0.0})
        for n in (1000 + 2 * step, 1001 + 2 * step):
            for _ in range(3):
                one.use(make_key(n), float(step), blocks)
        one.use(make_key(0), float(step), blocks)
        one.step_ended()


def like() -> HeatFreshness:
    return HeatFreshness(events=20, seconds=1e6)


def test_a_forecast_that_hits_more_is_better_after_patience() -> None:
    one = Duel(like())
    for step in range(1, 2 * PATIENCE):
        play(one, 1, {0: 50.0})
        assert not (one.better and step < PATIENCE)
    one.error(np.ones(2, np.float32), np.ones(2, np.float32), np.zeros(2, np.float32))
    report = one.report()
    assert report["forecast_hits"] >= report["window_hits"]
    assert one.better == (report["forecast_hits"] > report["window_hits"])


def test_one_that_hits_no_more_is_not_better() -> None:
    one = Duel(like())
    for step in range(3 * PATIENCE):
        one.foresee({})
        for n in (step, step + 1):
            one.use(make_key(n % 5), float(step), 3)
        one.step_ended()
    one.error(np.ones(2, np.float32), np.ones(2, np.float32), np.zeros(2, np.float32))
    assert one.report()["forecast_hits"] == one.report()["window_hits"] > 0
    assert not one.better


def test_nor_one_that_is_further_from_the_truth() -> None:
    one = Duel(like())
    one.verdicts = PATIENCE
    one._means = {"forecast_hits": 0.5, "window_hits": 0.4}
    one.error(np.array([1, 3], np.float32), np.array([1, 3], np.float32), np.array([0, 0], np.float32))
    assert one.better
    for _ in range(200):
        one.error(np.array([1, 3], np.float32), np.array([9, 9], np.float32), np.array([1, 3], np.float32))
    assert not one.better


def test_a_large_cache_is_imitated_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duel, "MOST_BLOCKS", 50)
    one, random = Duel(HeatFreshness(events=4000, seconds=1e6)), np.random.default_rng(0)
    for number, n in enumerate((random.zipf(1.2, 40_000) % 2000).tolist()):
        one.use(make_key(n), number / 10, 400)
        if number % 500 == 499:
            one.step_ended()
    assert len(one._shadows["window"]._held) == 50
    assert one._shadows["window"].policy.window.passes == 500
    whole = Duel(HeatFreshness(events=4000, seconds=1e6))
    monkeypatch.setattr(duel, "MOST_BLOCKS", 4096)
    for number, n in enumerate((np.random.default_rng(0).zipf(1.2, 40_000) % 2000).tolist()):
        whole.use(make_key(n), number / 10, 400)
        if number % 500 == 499:
            whole.step_ended()
    assert one.report()["window_hits"] == pytest.approx(whole.report()["window_hits"], abs=0.15)


def test_a_step_without_uses_is_no_verdict() -> None:
    one = Duel(like())
    one.step_ended()
    assert one.report() == {"verdicts": 0.0}
    assert not one.better
