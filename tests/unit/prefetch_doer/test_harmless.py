"""Nobody waits longer, gets another's error, or holds more memory for what is brought before it is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE, until

from mmcache import Cache
from mmcache.model.event import Missed, MissReason
from mmcache.model.key import Key
from mmcache.prefetch import Cancelled
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings
from mmcache.prefetch.demand import Demand
from mmcache.prefetch.planning import MOST_WAITING, Planner, Visit
from mmcache.prefetch.work import MOST_SESSIONS, Task, Work
from mmcache.repeat import Repeat
from mmcache.testing.clock import FakeClock


def key(number: int) -> Key:
    return Key(bytes(16), number.to_bytes(16, "big"))


def idle(**changes: Any) -> BehaviourPrefetch:
    return BehaviourPrefetch(BehaviourSettings(latency_seconds=0.0, **changes), threaded=False)


@pytest.mark.parametrize("error", [ValueError, Cancelled, FileNotFoundError])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_whoever_joined_what_fails_computes_it(error: type[BaseException], asynchronous: bool) -> None:
    entered, release = threading.Event(), threading.Event()
    answers: list[Any] = []

    def model(text: str) -> Any:
        if threading.current_thread().name == "ahead":
            entered.set()
            assert release.wait(PATIENCE)
            raise error
        return text.upper()

    with Cache() as cache:
        encode = cache.wrap(model, modality="text", signature="1", guard=False)

        def bring() -> None:
            with pytest.raises(error):
                Repeat(encode, "a", None, (), {})(None)

        ahead = threading.Thread(target=bring, name="ahead")
        ahead.start()
        assert entered.wait(PATIENCE)

        def ask() -> None:
            answers.append(asyncio.run(encode.a("a")) if asynchronous else encode("a"))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            until(lambda: cache.stats().misses == 1)
            assert cache.answers.computing == 0  # it waits for the one that is ahead
        finally:
            release.set()
            ahead.join()
            asking.join()
        assert answers == ["A"]
        assert encode("a") == "A"


def test_a_computation_that_raised_holds_nothing_up() -> None:
    prefetch = idle()
    with Cache(prefetch=prefetch, clock=FakeClock()) as cache:

        def model(text: str) -> Any:
            raise ValueError(text)

        encode = cache.wrap(model, modality="text", signature="1", guard=False)
        demand = prefetch._planner.demand
        asks: list[Callable[[], Any]] = [
            lambda: encode("a"), lambda: encode.batch(["b", "c"]), lambda: asyncio.run(encode.a("d")),
        ]  # fmt: skip
        for ask in asks:
            with pytest.raises(ValueError):
                ask()
            prefetch.pump()
            assert demand.waiting(cache.clock.monotonic()) == 0
        missing = cache.key("e", modality="text", signature="1")
        cache.get(missing)  # who computes that, and for how long, nobody knows
        prefetch.pump()
        assert demand.waiting(cache.clock.monotonic()) == 1


def test_what_was_invalidated_while_it_was_computed_holds_nothing_up() -> None:
    prefetch = idle()
    with Cache(prefetch=prefetch, clock=FakeClock()) as cache:

        def model(text: str) -> Any:
            cache.invalidate(encode.key(text))
            prefetch.pump()
            return [text]

        encode = cache.wrap(model, modality="text", signature="1", guard=False)
        encode("a")
        prefetch.pump()
        assert prefetch._planner.demand.waiting(cache.clock.monotonic()) == 0


def test_a_computation_that_outlasts_all_patience_is_waited_for() -> None:
    clock, prefetch = FakeClock(), idle()
    with Cache(prefetch=prefetch, clock=clock) as cache:
        seen: list[int] = []

        def model(text: str) -> Any:
            prefetch.pump()
            clock.advance(3600.0)
            prefetch.pump()
            seen.append(prefetch._planner.demand.waiting(clock.monotonic()))
            return [text]

        cache.wrap(model, modality="text", signature="1", guard=False)("a")
        prefetch.pump()
        assert seen == [1]
        assert prefetch._planner.demand.waiting(clock.monotonic()) == 0


def test_what_is_looked_for_ahead_is_no_miss() -> None:
    demand = Demand(30.0)
    missed = Missed(key(1), MissReason.ABSENT)
    assert demand.heard([missed], 0.0)[0] == 1
    assert demand.looks_for(key(1))  # it was counted
    assert demand.heard([missed], 0.0)[0] == 0
    assert not demand.looks_for(key(1))
    assert demand.waiting(0.0) == 0


def test_where_no_thread_can_be_started_it_is_tried_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    prefetch = BehaviourPrefetch(BehaviourSettings(latency_seconds=0.0))
    with Cache(prefetch=prefetch) as cache:

        def none(*given: Any) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(prefetch._life, "hand", none)
        work = Work(Task(key(1), 1, 0.5, 0.0, 0.0), lambda work: False, 1.0)
        prefetch._running[key(1)] = work
        prefetch._hand(work, cache.clock.monotonic())
        assert not prefetch._running
        assert key(1) in prefetch._planner.queue


def test_large_inputs_are_not_held_until_somebody_looks() -> None:
    prefetch = idle(remembered_bytes=1 << 20)
    with Cache(prefetch=prefetch) as cache:
        encode = cache.wrap(lambda array: [1.0], modality="tensor", signature="1", guard=False)
        for number in range(8):
            encode(np.full(50_000, number, np.float64))  # 400 kB each
        assert sum(again is not None for _, _, again, _ in prefetch._visits) == 2
        prefetch.pump()
        encode(np.zeros(10))
        assert prefetch._visits[-1][2] is not None


def test_an_input_whose_size_cannot_be_told_harms_nobody() -> None:
    class Strange:
        @property
        def size(self) -> int:
            raise ValueError

        def __call__(self, ttl: float | None) -> int:
            raise AssertionError

    prefetch = idle()
    with Cache(prefetch=prefetch) as cache:
        prefetch.visited(cache.key("a", modality="text", signature="1"), Strange())
        prefetch.pump()
        assert prefetch.status().visits == 1
        assert prefetch.status().remembered == 0


def test_who_waits_for_one_block_is_counted_within_bounds() -> None:
    work = Work(Task(key(1), 1, 0.5, 0.0, 0.0), lambda work: False, 1.0)
    for number in range(10_000):
        work.joins(number % 5000)
    assert len(work.joined) == MOST_SESSIONS


def test_a_closed_one_holds_nothing_more() -> None:
    prefetch = idle()
    with Cache(prefetch=prefetch) as cache:
        encode = cache.wrap(lambda array: [1.0], modality="tensor", signature="1", guard=False)
        encode(np.zeros(10))
        prefetch.close()
        encode(np.ones(10))
        assert all(again is None for _, _, again, _ in prefetch._visits)
        assert prefetch.status().remembered == 0
        assert cache.answers._fill.flights.told is None


@pytest.mark.slow
def test_visits_of_new_keys_by_new_sessions_fill_no_memory() -> None:
    settings = BehaviourSettings(latency_seconds=0.0, misses_a_minute=0.0)
    planner = Planner(settings, lower=True)
    for number in range(100_000):
        now, realm = number / 1000, number // 2 % 3
        wanted = key(number)
        planner.heard([Missed(wanted, MissReason.ABSENT)], now)
        planner.visited(Visit(realm, number // 2, wanted, now), now)
        if number % 100 == 0:
            planner.step(now, under_way=0, held=lambda _: False, realm=lambda one: 0)
    s = planner.settings
    assert planner.realms.nodes <= s.nodes
    assert planner.realms.edges <= s.edges
    assert planner.realms.sessions <= s.sessions
    assert len(planner.queue) <= s.queue
    assert len(planner._ahead) <= MOST_WAITING
    assert len(planner.demand._open) <= 4096
    assert len(planner.demand._ours) <= 4096
    assert len(planner.outstanding._last) <= 4096
    assert len(planner.retries) <= planner.retries.MOST
    assert len(planner.controller.log) <= planner.controller.settings.log
