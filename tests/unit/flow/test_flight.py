"""Single flight inside a process: one leader, takeover, and no caller that waits for itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mmcache import Cache, Key
from mmcache.flight import SingleFlight, leading


def make_key(cache: Cache, name: str) -> Key:
    return cache.key(name, modality="text", signature="v1")


def test_many_threads_that_miss_one_key_compute_once() -> None:
    with Cache() as cache:
        key, started, calls = make_key(cache, "k"), threading.Barrier(64), []

        def compute() -> str:
            calls.append(1)
            return "value"

        def run(_: int) -> Any:
            started.wait()
            return cache.get_or_compute(key, compute)

        with ThreadPoolExecutor(64) as pool:
            assert list(pool.map(run, range(64))) == ["value"] * 64
        assert len(calls) == 1


def test_an_error_reaches_every_caller_and_is_not_cached() -> None:
    with Cache() as cache:
        key, entered, release = make_key(cache, "k"), threading.Event(), threading.Event()

        def fail() -> None:
            entered.set()
            release.wait(10)
            raise LookupError("no such model")

        with ThreadPoolExecutor(2) as pool:
            leader = pool.submit(cache.get_or_compute, key, fail)
            entered.wait(10)
            follower = pool.submit(cache.get_or_compute, key, fail)
            release.set()
            for caller in (leader, follower):
                with pytest.raises(LookupError, match="no such model"):
                    caller.result(10)
        assert cache.get_or_compute(key, lambda: "second try") == "second try"


def test_a_recursive_call_of_the_same_key_computes_instead_of_waiting_for_itself() -> None:
    with Cache() as cache:
        key = make_key(cache, "k")
        assert cache.get_or_compute(key, lambda: cache.get_or_compute(key, lambda: "inner")) == "inner"


def test_crossing_computations_do_not_deadlock() -> None:
    with Cache() as cache:
        a, b = make_key(cache, "a"), make_key(cache, "b")
        both = threading.Barrier(2)

        def compute(other: Key) -> str:
            both.wait(10)
            return f"needs {cache.get_or_compute(other, lambda: 'leaf')}"

        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(cache.get_or_compute, a, lambda: compute(b))
            two = pool.submit(cache.get_or_compute, b, lambda: compute(a))
            assert {one.result(20), two.result(20)} & {"needs leaf"}


async def test_tasks_and_threads_share_one_flight() -> None:
    with Cache() as cache:
        key, calls = make_key(cache, "k"), []

        async def compute() -> str:
            calls.append(1)
            await asyncio.sleep(0)
            return "value"

        tasks = [cache.a.get_or_compute(key, compute) for _ in range(32)]
        threads = [asyncio.to_thread(cache.get_or_compute, key, lambda: "thread") for _ in range(8)]
        results = await asyncio.gather(*tasks, *threads)
        assert len(set(results)) == 1
        assert len(calls) <= 1


async def test_a_cancelled_leader_is_replaced() -> None:
    with Cache() as cache:
        key, entered = make_key(cache, "k"), asyncio.Event()

        async def hang() -> str:
            entered.set()
            await asyncio.Event().wait()
            return "never"

        leader = asyncio.create_task(cache.a.get_or_compute(key, hang))
        await entered.wait()
        follower = asyncio.create_task(cache.a.get_or_compute(key, lambda: "taken over"))
        await asyncio.sleep(0)
        leader.cancel()
        assert await follower == "taken over"
        with pytest.raises(asyncio.CancelledError):
            await leader


def test_an_interrupted_leader_is_replaced() -> None:
    with Cache() as cache:
        key, entered, release = make_key(cache, "k"), threading.Event(), threading.Event()

        def interrupted() -> str:
            entered.set()
            release.wait(10)
            raise KeyboardInterrupt

        with ThreadPoolExecutor(2) as pool:
            leader = pool.submit(cache.get_or_compute, key, interrupted)
            entered.wait(10)
            follower = pool.submit(cache.get_or_compute, key, lambda: "taken over")
            release.set()
            assert follower.result(10) == "taken over"
            with pytest.raises(KeyboardInterrupt):
                leader.result(10)


def test_what_was_invalidated_during_its_computation_is_returned_but_not_stored() -> None:
    with Cache() as cache:
        key = make_key(cache, "k")

        def compute() -> str:
            cache.invalidate(key)
            return "from the old source"

        assert cache.get_or_compute(key, compute) == "from the old source"
        assert cache.get(key) is None


def test_waiting_for_a_flight_that_waits_for_mine_is_refused() -> None:
    flights = SingleFlight()
    mine, _ = flights.join(Key(b"a" * 16, bytes(16)))
    other, _ = flights.join(Key(b"b" * 16, bytes(16)))
    other.waits_for.add(mine)
    with leading(mine), flights.waiting(other, blocking=False) as allowed:
        assert not allowed
    with flights.waiting(other, blocking=False) as allowed:
        assert allowed
