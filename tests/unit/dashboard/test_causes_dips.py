"""Which windows are compared."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.dashboard.dips import dip
from mmcache.dashboard.rows import Window
from mmcache.dashboard.steps import Tally

STEP = 60.0


def series(ratios: list[float], seed: int = 0) -> list[Tally]:
    rng = np.random.default_rng(seed)
    drawn = [(float(rng.poisson(300 * ratio)), float(rng.poisson(300 * (1 - ratio)))) for ratio in ratios]
    return [Tally(STEP * at, hits, misses, hits + misses) for at, (hits, misses) in enumerate(drawn)]


def near(window: Window, start: int, end: int) -> bool:
    return abs(window.start - STEP * start) <= 2 * STEP and abs(window.end - STEP * end) <= 2 * STEP


@pytest.mark.parametrize("seed", range(5))
def test_the_fall_in_the_last_hour_is_compared_with_the_time_before_it(seed: int) -> None:
    before, now = dip(series([0.9] * 100 + [0.6] * 20, seed), Window(60 * STEP, 120 * STEP), STEP)
    assert near(before, 0, 100)
    assert near(now, 100, 120)


@pytest.mark.parametrize("between", [0.5, 0.6, 0.75])
def test_a_fall_in_two_steps_is_one(between: float) -> None:
    before, now = dip(series([0.9] * 80 + [between] * 10 + [0.4] * 30), Window(60 * STEP, 120 * STEP), STEP)
    assert near(before, 0, 80)
    assert near(now, 80, 120)


def test_a_dip_that_is_over_ends_where_it_came_back() -> None:
    before, now = dip(series([0.9] * 70 + [0.5] * 20 + [0.88] * 30), Window(60 * STEP, 120 * STEP), STEP)
    assert near(before, 0, 70)
    assert near(now, 70, 90)


def test_whoever_asks_for_the_dip_alone_gets_what_was_before_it() -> None:
    before, now = dip(series([0.9] * 70 + [0.5] * 20), Window(72 * STEP, 88 * STEP), STEP)
    assert near(before, 0, 70)
    assert near(now, 70, 88)


def test_a_dip_before_what_is_asked_for_is_not_meant() -> None:
    asked = Window(60 * STEP, 120 * STEP)
    assert dip(series([0.9] * 20 + [0.5] * 20 + [0.9] * 80), asked, STEP) == (Window(0, 60 * STEP), asked)


def test_without_a_fall_the_time_before_is_compared() -> None:
    asked = Window(60 * STEP, 120 * STEP)
    assert dip(series([0.9] * 120), asked, STEP) == (Window(0, 60 * STEP), asked)
    assert dip([], asked, STEP) == (Window(60 * STEP, 90 * STEP), Window(90 * STEP, 120 * STEP))
    assert dip(series([0.5] * 60 + [0.9] * 60), asked, STEP) == (Window(0, 60 * STEP), asked)
