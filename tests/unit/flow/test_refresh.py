"""Early refresh and stale-while-revalidate: one caller computes anew, everybody else is served at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache, Key, Settings
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.event import Failed, MissReason
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw
from mmcache.tiers.base import Found
from mmcache.tiers.memory import MemoryTier
from mmcache.ttl.fixed import FixedTTL

COST = 2.0
"""Seconds that the model is said to take."""


def make(clock: FakeClock, **options: Any) -> tuple[Cache, Key]:
    cache = Cache(clock=clock, ttl=100, **options)
    return cache, cache.key("k", modality="text", signature="v1")


def always(monkeypatch: pytest.MonkeyPatch, draw: float) -> None:
    monkeypatch.setattr("mmcache.keeping.random.random", lambda: draw)


class Once:
    """A model that counts its calls and waits to be let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.calls += 1
        self.entered.set()
        assert self.go.wait(10)
        return "new"


def forbidden() -> str:
    raise AssertionError("nobody may compute")


def test_long_before_the_end_nobody_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock)
    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(60)
        assert cache.get_or_compute(key, forbidden) == "old"


@pytest.mark.parametrize(("draw", "calls"), [(0.0, 1), (1.0, 0)])
def test_near_the_end_chance_decides(monkeypatch: pytest.MonkeyPatch, draw: float, calls: int) -> None:
    always(monkeypatch, draw)
    clock = FakeClock()
    cache, key = make(clock)
    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(99)
        once = Once()
        once.go.set()
        assert cache.get_or_compute(key, once) == ("new" if calls else "old")
        assert once.calls == calls
        clock.advance(2)  # the old one would be over
        assert cache.get(key) == ("new" if calls else None)


def test_beta_0_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock, settings=Settings(early_refresh=0.0))
    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(99.999)
        assert cache.get_or_compute(key, forbidden) == "old"


@pytest.mark.parametrize("after", [99.0, 101.0])
def test_one_computes_and_the_others_are_served_at_once(monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)
    once = Once()
    with cache, ThreadPoolExecutor(1) as pool:
        cache.put(key, "old", cost=COST)
        clock.advance(after)
        leader = pool.submit(cache.get_or_compute, key, once)
        assert once.entered.wait(10)
        assert [cache.get_or_compute(key, forbidden) for _ in range(50)] == ["old"] * 50
        once.go.set()
        assert leader.result() == "new"
        assert once.calls == 1
        assert cache.get_or_compute(key, forbidden) == "new" if after < 100 else cache.get(key) == "new"


def test_after_its_grace_it_is_a_miss() -> None:
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)
    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(110)
        once = Once()
        once.go.set()
        assert cache.get_or_compute(key, once) == "new"
        assert cache.stats().miss_reasons == {"expired": 1}


def test_who_does_not_compute_gets_nothing_stale() -> None:
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)
    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(101)
        assert cache.get(key) is None
        assert cache.peek(key) is None
        assert cache.explain(key).verdict == "miss (expired)"


@pytest.mark.parametrize("after", [99.0, 101.0])
def test_a_failed_refresh_serves_what_is_there(monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)

    def broken() -> str:
        raise LookupError("the model is away")

    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(after)
        assert cache.get_or_compute(key, broken) == "old"
        assert any(isinstance(event, Failed) and event.where == "refresh" for event in cache.events.recent())
        clock.advance(20)
        with pytest.raises(LookupError):
            cache.get_or_compute(key, broken)


def test_an_invalidation_meanwhile_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock)
    once = Once()
    with cache, ThreadPoolExecutor(1) as pool:
        cache.put(key, "old", cost=COST)
        clock.advance(99)
        leader = pool.submit(cache.get_or_compute, key, once)
        assert once.entered.wait(10)
        cache.invalidate(key)
        once.go.set()
        assert leader.result() == "new"
        assert cache.get(key) is None


def test_async_callers_are_served_while_one_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)

    async def run() -> None:
        go, entered = asyncio.Event(), asyncio.Event()

        async def compute() -> str:
            entered.set()
            await go.wait()
            return "new"

        leader = asyncio.create_task(cache.a.get_or_compute(key, compute))
        await entered.wait()
        assert await asyncio.gather(*(cache.a.get_or_compute(key, forbidden) for _ in range(20))) == ["old"] * 20
        go.set()
        assert await leader == "new"

    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(101)
        asyncio.run(run())


def test_another_process_refreshes_and_the_claim_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    one, key = make(clock, root=tmp_path)
    other, _ = make(clock, root=tmp_path)
    once = Once()
    with one, other, ThreadPoolExecutor(1) as pool:
        one.put(key, "old", cost=COST)
        one.flush()
        assert other.get(key) == "old"
        clock.advance(99)
        leader = pool.submit(one.get_or_compute, key, once)
        assert once.entered.wait(10)
        assert other.get_or_compute(key, forbidden) == "old"
        once.go.set()
        assert leader.result() == "new"
        one.flush()
        clock.advance(2)
        assert other.get(key) == "new"
        behind: Any = one._store.lower[0]
        claims: Any = behind.inner
        assert claims.claims.acquire(key)
        claims.claims.release(key)


def test_an_encoder_refreshes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock, calls = FakeClock(), []
    with Cache(clock=clock, ttl=100, stale_while_revalidate=10) as cache:

        @cache.wrap(modality="text", signature="v1", guard=False)
        def encode(words: str) -> str:
            calls.append(words)
            return words.upper()

        assert [encode("a"), encode("a")] == ["A", "A"]
        clock.advance(101)
        assert encode("a") == "A"
        assert len(calls) == 2
        clock.advance(101)
        assert encode.batch(["a", "a"]) == ["A", "A"]  # a batch waits for what is over
        assert len(calls) == 3


@pytest.mark.parametrize("options", [{"stale_while_revalidate": -1}, {"settings": Settings(early_refresh=-1.0)}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="0 or more"):
        Cache(**options)


def test_shadow_mode_always_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    cache, key = make(clock, mode="shadow", stale_while_revalidate=10)
    compute: Callable[[], str] = lambda: "computed"  # noqa: E731
    with cache:
        cache.put(key, "old", cost=COST)
        for seconds in (99, 2, 20):
            clock.advance(seconds)
            assert cache.get_or_compute(key, compute) == "computed"


@pytest.mark.parametrize("cost", [-10.0, float("nan"), float("inf")])
def test_no_cost_makes_a_block_outlive_its_end(cost: float) -> None:
    clock = FakeClock()
    cache, key = make(clock)
    with cache:
        with pytest.raises(SettingsError, match="a cost is"):
            cache.put(key, "old", cost=cost)
        cache._store.put(key, cache.scopes.require(key), "old", cost=cost, ttl=5.0, done=lambda: None)
        clock.advance(5)
        assert cache.get_or_compute(key, lambda: "new") == "new"


class Timeless(FixedTTL):
    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        return float("nan")


def test_a_deadline_that_is_no_number_is_over() -> None:
    cache = Cache(ttl=Timeless())
    with cache:
        key = cache.key("k", modality="text", signature="v1")
        assert cache.get_or_compute(key, lambda: "value") == "value"
        assert cache.get(key) is None


def test_the_async_twin_refuses_what_is_no_lifetime() -> None:
    cache, key = make(FakeClock())
    with cache, pytest.raises(SettingsError, match="ttl"):
        asyncio.run(cache.a.get_or_compute(key, lambda: "value", ttl=float("nan")))


@pytest.mark.parametrize("why", ["too late", "invalidated"])
def test_a_refresh_that_fails_when_nothing_is_there_any_more_raises(why: str) -> None:
    clock = FakeClock()
    cache, key = make(clock, stale_while_revalidate=10)

    def broken() -> str:
        if why == "too late":
            clock.advance(10)
        else:
            cache.invalidate(key)
        raise LookupError("the model is away")

    with cache:
        cache.put(key, "old", cost=COST)
        clock.advance(101)
        with pytest.raises(LookupError):
            cache.get_or_compute(key, broken)


def test_who_comes_after_an_invalidation_is_not_served_what_an_earlier_lookup_found(tmp_path: Path) -> None:
    clock = FakeClock()
    cache, key = make(clock, root=tmp_path, stale_while_revalidate=10)
    claims: Any = cache.below.claims
    fill: Any = cache.answers._fill
    acquire, follow, follows = claims.acquire, fill.follow, threading.Event()
    with cache, ThreadPoolExecutor(1) as pool:
        cache.put(key, "old", cost=COST)
        clock.advance(101)
        look = cache.answers.look_up([key], settled=True)[0]
        cache.invalidate(key)
        later = []

        def following(*arguments: Any) -> Any:
            follows.set()
            return follow(*arguments)

        def taken(wanted: Key) -> bool:
            claims.acquire, fill.follow = acquire, following
            later.append(pool.submit(cache.get_or_compute, key, lambda: "new"))
            assert follows.wait(10)
            return False  # another process is at it

        claims.acquire = taken
        assert cache.answers.settle(key, look, forbidden) == "old"  # it asked before
        assert later[0].result(10) == "new"


@pytest.mark.parametrize("after", [99.0, 101.0])
def test_what_another_process_refreshed_is_taken_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: float
) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    one, key = make(clock, root=tmp_path, stale_while_revalidate=10)
    other, _ = make(clock, root=tmp_path, stale_while_revalidate=10)
    with one, other:
        one.put(key, "old", cost=COST)
        one.flush()
        assert other.get(key) == "old"
        clock.advance(after)
        assert one.get_or_compute(key, lambda: "new") == "new"
        one.flush()
        before = other.stats().hits
        assert other.get_or_compute(key, forbidden) == "new"
        assert other.stats().hits == before + 1
        assert other.peek(key) == "new"


class Drifting(MemoryTier):
    """Its deadlines are translated from another machine's clock, never twice to the same number."""

    asked = 0

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        self.asked += 1
        found = super().get(keys)
        return [replace(f, deadline=f.deadline + self.asked * 1e-6) if isinstance(f, Found) else f for f in found]  # type: ignore[operator]


def test_a_deadline_that_is_read_a_little_different_is_no_newer_block(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, 0.0)
    clock = FakeClock()
    tier = Drifting(MemorySettings(), LRU(), WholeThaw, clock=clock)
    tier.name = "far"
    cache, key = make(clock, memory=3000, lower=[tier])
    with cache:
        cache.put(key, "old" * 1000, cost=COST)
        clock.advance(99)
        assert cache.peek(key) is None
        assert cache.get_or_compute(key, lambda: "new" * 1000) == "new" * 1000
