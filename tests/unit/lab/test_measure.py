"""Interleaved timing: bookkeeping only; no test asserts a time."""

from __future__ import annotations

import gc

import pytest

from mmcache.lab import measure
from mmcache.lab.measure import Timing, interleave, memcpy


def test_calls_take_turns_and_orders_alternate() -> None:
    log: list[str] = []
    timings = interleave({"a": lambda: log.append("a"), "b": lambda: log.append("b")}, rounds=3, once=True)
    assert "".join(log) == "baabba"
    assert {name: len(timing.samples) for name, timing in timings.items()} == {"a": 3, "b": 3}


def test_a_sample_is_the_time_of_one_operation() -> None:
    whole = Timing("x", (1.0, 2.0, 3.0))
    assert whole.median == 2.0
    assert whole.over(Timing("y", (2.0, 2.0, 2.0))) == [0.5, 1.0, 1.5]
    assert whole.scaled(10) == [10.0, 20.0, 30.0]


def test_repeated_calls_are_counted_and_the_collector_comes_back() -> None:
    calls = [0]

    def call() -> None:
        calls[0] += 1

    seen: list[int] = []
    interleave({"x": call}, rounds=4, least_seconds=1e-6, progress=lambda what, done, total: seen.append(done))
    assert calls[0] > 4
    assert seen == [1, 2, 3, 4]
    assert gc.isenabled()


def test_memcpy_copies() -> None:
    assert memcpy(1 << 10)() is None


def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (1.9, 0.0, 0.0))
    assert measure.busy() == []
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 0.0, 0.0))
    assert "load 9.0" in measure.busy()[0]
