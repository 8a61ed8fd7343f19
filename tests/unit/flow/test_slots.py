"""Compute slots with real threads and tasks: bounds, order, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from mmcache import Cache, Key
from mmcache.admission.qos import QoS
from mmcache.model.errors import SettingsError
from mmcache.niceness import check_nice
from mmcache.settings import Settings, Tenant
from mmcache.slots import Slots, lent
from mmcache.testing import FakeClock

TENANTS = {"pay": Tenant("critical"), "shop": Tenant("normal"), "report": Tenant("batch")}
PATIENT = 30.0
"""Seconds after which a test that hangs fails."""


def make_slots(count: int, **options: Any) -> Slots:
    return Slots(count, QoS(TENANTS), tenants=TENANTS, **options)


@contextmanager
def limited(count: int, **options: Any) -> Iterator[tuple[Cache, Slots]]:
    with Cache() as cache:
        slots = make_slots(count, **options)
        cache.answers._fill._slots = slots
        yield cache, slots
        assert (slots.taken_now, slots.waiting_now) == (0, 0), "a slot was not given back"


def make_key(cache: Cache, name: str, tenant: str = "shop") -> Key:
    return cache.key(name, modality="text", signature="v1", tenant=tenant)


class Gate:
    """A computation that says when it begins and ends when it is told to."""

    def __init__(self, log: list[str] | None = None, name: str = "") -> None:
        self.entered, self.release, self.log, self.name = threading.Event(), threading.Event(), log, name

    def __call__(self) -> str:
        if self.log is not None:
            self.log.append(self.name)
        self.entered.set()
        assert self.release.wait(PATIENT)
        return self.name


def wait_until(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(PATIENT * 1000)):
        if condition():
            return
        waited.wait(0.001)
    raise AssertionError("it never happened")


def test_settings() -> None:
    with pytest.raises(SettingsError):
        make_slots(0)


def test_at_most_so_many_compute_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def compute() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1
        return 1

    with limited(3) as (cache, slots), ThreadPoolExecutor(16) as pool:
        keys = [make_key(cache, f"{n}", list(TENANTS)[n % 3]) for n in range(90)]
        assert list(pool.map(lambda key: cache.get_or_compute(key, compute), keys)) == [1] * 90
        assert most <= 3
        assert sum(waited.at_once + waited.delayed for waited in slots.waited.values()) == 90


def test_who_waits_goes_by_class_and_a_batch_caller_gets_its_value_in_the_end() -> None:
    order: list[str] = []
    with limited(1) as (cache, slots), ThreadPoolExecutor(8) as pool:
        first = Gate()
        pool.submit(cache.get_or_compute, make_key(cache, "first"), first)
        assert first.entered.wait(PATIENT)
        calls: list[Future[Any]] = []
        for n, tenant in enumerate(["report", "shop", "report", "pay"]):
            key = make_key(cache, f"{n}", tenant)
            calls.append(pool.submit(cache.get_or_compute, key, partial(order.append, tenant)))
            wait_until(lambda n=n: slots.waiting_now == n + 1)  # type: ignore[misc]
        first.release.set()
        for call in calls:
            call.result(PATIENT)
        assert order == ["pay", "shop", "report", "report"]
        assert slots.waited["report"].delayed == 2
        assert slots.waited[""].delayed == 0


def test_batch_cannot_take_all_slots() -> None:
    with limited(2) as (cache, slots), ThreadPoolExecutor(8) as pool:
        batch = [Gate(), Gate()]
        calls = [
            pool.submit(cache.get_or_compute, make_key(cache, f"{n}", "report"), gate) for n, gate in enumerate(batch)
        ]
        wait_until(lambda: slots.waiting_now == 1)
        assert cache.get_or_compute(make_key(cache, "urgent", "pay"), lambda: "at once") == "at once"
        assert sum(gate.entered.is_set() for gate in batch) == 1
        for gate in batch:
            gate.release.set()
        for call in calls:
            call.result(PATIENT)


def test_a_computation_within_a_computation_needs_no_slot_of_its_own() -> None:
    with limited(1) as (cache, _):
        inner, other = make_key(cache, "inner"), make_key(cache, "another one")

        def outer() -> Any:
            return cache.get_or_compute(inner, lambda: cache.get_or_compute(other, lambda: "three deep"))

        assert cache.get_or_compute(make_key(cache, "outer"), outer) == "three deep"


def test_who_holds_the_slot_may_wait_for_a_flight_whose_leader_waits_for_the_slot() -> None:
    with limited(1) as (cache, slots), ThreadPoolExecutor(4) as pool:
        shared, in_slot, may_ask = make_key(cache, "shared"), threading.Event(), threading.Event()

        def outer() -> Any:
            in_slot.set()
            assert may_ask.wait(PATIENT)
            return cache.get_or_compute(shared, lambda: "not by me")

        holder = pool.submit(cache.get_or_compute, make_key(cache, "outer"), outer)
        assert in_slot.wait(PATIENT)
        leader = pool.submit(cache.get_or_compute, shared, lambda: "by its leader")
        wait_until(lambda: slots.waiting_now == 1)
        may_ask.set()
        assert holder.result(PATIENT) == leader.result(PATIENT) == "by its leader"


def test_an_error_gives_the_slot_back() -> None:
    def fail() -> None:
        raise LookupError("no such model")

    with limited(1) as (cache, _):
        for _ in range(3):
            with pytest.raises(LookupError):
                cache.get_or_compute(make_key(cache, "k"), fail)
        assert cache.get_or_compute(make_key(cache, "k"), lambda: "fine") == "fine"


def test_an_interrupted_caller_gives_the_slot_back() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with limited(1) as (cache, _), pytest.raises(KeyboardInterrupt):
        cache.get_or_compute(make_key(cache, "k"), interrupt)


def test_many_misses_of_one_call_take_one_slot() -> None:
    with limited(1) as (cache, slots):
        encode = cache.wrap(
            lambda text: text.upper(), modality="text", signature="v1", tenant="pay",
            batch=lambda texts: [text.upper() for text in texts],
        )  # fmt: skip
        assert encode.batch(["a", "b", "c"], stack=False) == ["A", "B", "C"]
        assert slots.waited["pay"].at_once == 1


def test_where_nothing_moves_the_next_one_goes_anyway() -> None:
    clock = FakeClock()
    slots = make_slots(1, clock=clock, patience_seconds=60.0, look_again_seconds=0.001)
    with slots.taken("shop"), ThreadPoolExecutor(1) as pool:  # a plain pool knows nothing of the slot it works for

        def inside() -> int:
            with slots.taken("shop"):
                return slots.taken_now

        call = pool.submit(inside)
        wait_until(lambda: slots.waiting_now == 1)
        clock.advance(59.0)
        assert not call.done()
        clock.advance(2.0)
        assert call.result(PATIENT) == 2, "one more than there are"
    assert (slots.taken_now, slots.waiting_now) == (0, 0)


def test_a_lent_slot_serves_others_and_is_taken_back() -> None:
    slots = make_slots(1)
    with slots.taken("shop"):
        with lent(), lent():
            assert slots.taken_now == 0
            other = slots.taken("pay")  # kept, or it would end at once
            with ThreadPoolExecutor(1) as pool:
                pool.submit(other.__enter__).result(PATIENT)
        assert slots.taken_now == 2
    assert slots.taken_now == 1
    with lent():
        assert slots.taken_now == 1, "who holds none lends none"


async def test_tasks_wait_without_blocking_the_loop_and_a_cancelled_one_leaves() -> None:
    with limited(1) as (cache, slots):
        first = Gate(name="first")
        running = asyncio.ensure_future(cache.a.get_or_compute(make_key(cache, "first"), first))
        while not first.entered.is_set():
            await asyncio.sleep(0)
        waiting = [
            asyncio.ensure_future(cache.a.get_or_compute(make_key(cache, name, "report"), lambda: "value"))
            for name in ("cancelled", "served")
        ]
        while slots.waiting_now < 2:
            await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert slots.waiting_now == 1
        first.release.set()
        assert await running == "first"
        assert await waiting[1] == "value"


async def test_a_task_cancelled_while_it_computes_gives_the_slot_back() -> None:
    with limited(1) as (cache, slots):
        entered = asyncio.Event()

        async def compute() -> None:
            entered.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(cache.a.get_or_compute(make_key(cache, "k"), compute))
        await entered.wait()
        assert slots.taken_now == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slots.taken_now == 0


async def test_tasks_of_one_computation_run_within_its_slot() -> None:
    with limited(1) as (cache, _):

        async def part(name: str) -> Any:
            return await cache.a.get_or_compute(make_key(cache, name), lambda: name)

        async def whole() -> str:
            return "".join(await asyncio.gather(part("a"), part("b"), asyncio.to_thread(asyncio.run, part("c"))))

        assert await cache.a.get_or_compute(make_key(cache, "whole"), whole) == "abc"


async def test_a_blocking_call_on_the_loops_own_thread_does_not_wait_for_the_loop() -> None:
    with limited(1) as (cache, _):
        entered, release = asyncio.Event(), asyncio.Event()

        async def compute() -> str:
            entered.set()
            await release.wait()
            return "async"

        task = asyncio.ensure_future(cache.a.get_or_compute(make_key(cache, "a"), compute))
        await entered.wait()
        assert cache.get_or_compute(make_key(cache, "b"), lambda: "blocking") == "blocking"
        release.set()
        assert await task == "async"


def may_be_raised_again() -> bool:
    try:
        check_nice(10)
    except SettingsError:
        return False
    return True


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(not may_be_raised_again(), reason="threads may not be raised again here")
async def test_batch_computations_give_way_and_their_threads_are_raised_again() -> None:
    before = niceness()
    with limited(2, nice={"report": 10}) as (cache, _):
        keys = {tenant: make_key(cache, tenant, tenant) for tenant in TENANTS}
        for tenant, key in keys.items():
            expected = max(before, 10) if tenant == "report" else before
            assert cache.get_or_compute(key, niceness) == expected
            assert niceness() == before
            cache.invalidate(key)
            assert await cache.a.get_or_compute(key, niceness) == expected

        async def on_the_loop() -> int:
            return niceness()

        cache.invalidate(keys["report"])
        assert await cache.a.get_or_compute(keys["report"], on_the_loop) == before, "the loop serves others too"

        def fail() -> None:
            raise LookupError("no such model")

        cache.invalidate(keys["report"])
        with pytest.raises(LookupError):
            cache.get_or_compute(keys["report"], fail)
        assert niceness() == before


def test_giving_way_needs_the_right_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(which: int, who: int, nice: int) -> None:
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "setpriority", denied)
    make_slots(1, nice={"report": 0})
    with pytest.raises(SettingsError):
        make_slots(1, nice={"report": 10})
    for nice in (-1, 20):
        with pytest.raises(SettingsError):
            check_nice(nice)


def test_a_forked_child_has_all_slots() -> None:
    slots = make_slots(1)
    with slots.taken("report"):
        pid = os.fork()
        if pid == 0:
            free = slots.taken_now == 0 and slots.waiting_now == 0
            urgent = slots.taken("pay")
            thread = threading.Thread(target=urgent.__enter__)
            thread.start()
            thread.join(PATIENT)
            os._exit(0 if free and slots.taken_now == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert slots.taken_now == 1


def test_a_storm_of_crossing_computations_ends() -> None:
    """Every computation asks for two others, so flights wait for flights that wait for slots."""
    with limited(2) as (cache, _), ThreadPoolExecutor(12) as pool:
        keys = [make_key(cache, f"{n}", list(TENANTS)[n % 3]) for n in range(24)]

        def compute(n: int) -> Any:
            if n < 3:
                return 1
            return 1 + sum(cache.get_or_compute(keys[m], partial(compute, m)) for m in (n // 2, n // 3))

        def plain(n: int) -> int:
            return 1 if n < 3 else 1 + plain(n // 2) + plain(n // 3)

        calls = [pool.submit(cache.get_or_compute, keys[n], partial(compute, n)) for n in reversed(range(24))]
        assert [call.result(PATIENT) for call in calls] == [plain(n) for n in reversed(range(24))]


@pytest.mark.parametrize(("mode", "bypass", "taken"), [("on", True, 1), ("shadow", False, 1), ("off", False, 0)])
def test_recomputations_take_a_slot_unless_the_cache_is_off(mode: Any, bypass: bool, taken: int) -> None:
    with limited(1) as (cache, slots):
        key = make_key(cache, "k")
        cache.put(key, "old")
        cache.switch(mode)
        seen: list[int] = []

        def compute() -> str:
            seen.append(slots.taken_now)
            return "new"

        assert cache.get_or_compute(key, compute, bypass=bypass) == "new"
        asyncio.run(cache.a.get_or_compute(key, compute, bypass=bypass))
        assert seen == [taken, taken]
        cache.switch("on")


def test_a_setting_limits_computations() -> None:
    with Cache(settings=Settings(compute_slots=1), tenants=TENANTS) as cache, ThreadPoolExecutor(2) as pool:
        first, second = Gate(), Gate()
        done = [
            pool.submit(cache.get_or_compute, make_key(cache, str(n)), gate) for n, gate in enumerate((first, second))
        ]
        assert first.entered.wait(PATIENT) or second.entered.wait(0)
        assert not (first.entered.is_set() and second.entered.is_set())
        first.release.set()
        second.release.set()
        assert [future.result(PATIENT) for future in done] == ["", ""]
