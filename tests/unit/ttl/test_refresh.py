"""Early refresh: no draw fires before the window, and within it as often as the paper says."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.ttl.refresh import RAREST, early, window

COSTS = st.floats(1e-3, 1e3)
BETAS = st.floats(0.1, 10)


@given(COSTS, BETAS, st.floats(0, 1), st.floats(1e-6, 1e6))
def test_never_before_the_window(cost: float, beta: float, draw: float, before: float) -> None:
    ends = 1e4
    assert not early(ends, cost, beta, ends - window(cost, beta) * (1 + 1e-9) - before, draw)


@given(COSTS, BETAS, st.floats(0, 1), st.floats(0, 1e6))
def test_always_at_the_end(cost: float, beta: float, draw: float, after: float) -> None:
    assert early(1e4, cost, beta, 1e4 + after, draw)


@given(COSTS, BETAS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_once_due_stays_due(cost: float, beta: float, draw: float, one: float, other: float) -> None:
    ends, (sooner, later) = 1e4, sorted((one, other))
    span = window(cost, beta)
    if early(ends, cost, beta, ends - span * (1 - sooner), draw):
        assert early(ends, cost, beta, ends - span * (1 - later), draw)


@pytest.mark.parametrize("left", [0.1, 0.5, 2.0])
def test_fires_with_the_probability_of_the_paper(left: float) -> None:
    chance = random.Random(4)
    fired = sum(early(100.0, 0.5, 2.0, 100.0 - left, chance.random()) for _ in range(20_000)) / 20_000
    assert fired == pytest.approx(math.exp(-left / (0.5 * 2.0)), abs=0.01)


def test_what_costs_nothing_has_no_window() -> None:
    assert window(0.0, 1.0) == 0.0
    assert not early(10.0, 0.0, 1.0, 9.999, RAREST)
