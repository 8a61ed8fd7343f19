"""A sum over a window that slides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.scale.days import LARGEST_CHANGE, PART_SECONDS, PARTS, Days
from mmcache.scale.window import PIECES, Window


@settings(deadline=None, derandomize=True, max_examples=100)
@given(steps=st.lists(st.tuples(st.floats(0.01, 30), st.floats(0, 100)), min_size=1, max_size=300))
def test_it_is_bounded_and_never_more_than_the_window_or_the_latest(steps: list[tuple[float, float]]) -> None:
    window, at = Window(), 0.0
    for seconds, rate in steps:
        at += seconds
        window.add(at, seconds, rate * seconds, 60.0)
        assert len(window.pieces) <= PIECES + 2
        assert window.covered <= 60.0 + 1e-6
        assert window.rate <= max(rate for _, rate in steps) + 1e-6
        assert window.latest(1e9) == pytest.approx(window.rate)


def test_a_steady_rate_is_that_rate_whatever_the_looks() -> None:
    for step in (0.1, 1.0, 5.0, 7.0, 60.0, 200.0):
        window = Window()
        for turn in range(1, 100):
            window.add(turn * step, step, 12.0 * step, 60.0)
        assert window.rate == pytest.approx(12.0)
        assert window.latest(10.0) == pytest.approx(12.0)


def test_what_is_old_is_forgotten() -> None:
    window = Window()
    for turn in range(1, 13):
        window.add(turn * 5.0, 5.0, 100.0, 60.0)
    window.trim(90.0, 60.0)
    assert window.amount == pytest.approx(600.0)
    window.trim(1000.0, 60.0)
    assert (window.amount, window.covered, window.rate, window.latest(10.0)) == (0.0, 0.0, 0.0, 0.0)


def test_days_are_known_late_and_change_is_bounded() -> None:
    days = Days()
    for minute in range(24 * 60):
        at = minute * 60.0
        days.add(at + 30, 60.0, 10.0 if at < 43_200 else 100.0)
    assert days.rate(6 * 3600.0) == pytest.approx(10.0)
    assert days.rate(13 * 3600.0) == pytest.approx(100.0)
    assert days.rate(86_400.0 + 6 * 3600.0) == pytest.approx(10.0)
    assert days.rate(23.9 * 3600.0) is None  # not before two hours later
    hours = [(hour * 3600.0, 1.0) for hour in (6, 7, 13, 23.9)]
    assert days.carried(hours, 14 * 3600.0) == pytest.approx([LARGEST_CHANGE, LARGEST_CHANGE, 1.0, 1.0])
    assert days.carried(hours, 8 * 3600.0) == pytest.approx([1.0, 1.0, 1 / LARGEST_CHANGE, 1.0])
    assert days.carried(hours, 23.9 * 3600.0) == [1.0] * 4


@pytest.mark.parametrize("window", [10, 60, 90, 119, 121, 300, 600, 900, 1000, 1800, 3600])
def test_days_are_learned_from_windows_of_any_length(window: int) -> None:
    days = Days()
    for number in range(2 * 86_400 // window):
        days.add((number + 0.5) * window, float(window), 10.0)
    assert len(days.usual) == PARTS
    assert days.rate(12.25 * 3600) == pytest.approx(10.0)


def test_half_a_part_is_no_part() -> None:
    days = Days()
    for part in range(10):
        for minute in range(10):
            days.add(part * PART_SECONDS + minute * 60 + 30, 60.0, 10.0)
    assert days.usual == {}
    assert days.fresh == []
