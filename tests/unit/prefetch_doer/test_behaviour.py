"""What a visitor will look for is brought before, in virtual time and without threads, through a real cache."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, visit
from mmcache.model.errors import SettingsError
from mmcache.model.event import Hit, Missed, Prefetched, Prefetching
from mmcache.prefetch import Cancelled, cancelled
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings
from mmcache.testing.clock import FakeClock

PAGES = [f"page {number}" for number in range(6)]
THINKING = 5.0
"""Seconds between two pages."""


class World:
    """A cache with a prefetcher that is pumped by hand, and a model that takes half a second of virtual time."""

    def __init__(self, root: Path | None = None, *, disk: str | None = None, **changes: Any) -> None:
        self.clock = FakeClock()
        changes = {"latency_seconds": 0.0, "lookback": 2} | changes
        self.prefetch = BehaviourPrefetch(BehaviourSettings(**changes), threaded=False)
        self.cache = Cache(root, disk=disk, prefetch=self.prefetch, clock=self.clock)
        self.computed: list[str] = []
        self.during: Callable[[str], None] = lambda text: None
        self.encode = self.cache.wrap(self.model, modality="text", signature="1", guard=False)

    def model(self, text: str) -> Any:
        self.computed.append(text)
        self.during(text)
        self.clock.advance(0.5)
        return np.full(100, len(text), np.float32)

    def pump(self, times: int = 8) -> None:
        for _ in range(times):
            self.prefetch.pump()

    def walk(self, name: str, pages: list[str], encode: Any = None, times: int = 8) -> list[str]:
        """A visitor looks at one page after another; those that had to be computed while it waited."""
        waited = []
        for page in pages:
            before = len(self.computed)
            with visit(name):
                (encode or self.encode)(page)
            waited += self.computed[before:]
            self.pump(times)
            self.clock.advance(THINKING)
        return waited

    def forget(self, pages: list[str]) -> None:
        self.cache.invalidate([self.encode.key(page) for page in pages])
        self.pump(1)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.cache:
        yield world


def learnt(world: World, times: int = 3) -> None:
    """Visitors went through the pages in order; what was computed is gone."""
    for number in range(times):
        world.walk(f"before {number}", PAGES)
        world.forget(PAGES)


def test_who_follows_the_others_waits_for_the_first_page_only(world: World) -> None:
    learnt(world)
    assert world.walk("new", PAGES) == PAGES[:1]
    status = world.prefetch.status()
    assert status.used >= 5
    assert status.share_used is not None
    assert status.share_low <= status.share_used <= status.share_high
    assert status.seconds_saved >= 2.5
    assert status.trust == "trusted"
    assert status.sessions >= 4


def test_what_is_asked_for_next_comes_first() -> None:
    """Within the default window all that follows is one hop away; there is time for one block a page."""
    world = World(lookback=BehaviourSettings().lookback)
    with world.cache:
        learnt(world)
        world.walk("settles", PAGES)  # what was tried until now is judged
        world.forget(PAGES)
        assert world.walk("new", PAGES, times=1) == PAGES[:1]


def test_what_was_brought_is_told_and_counted_as_no_lookup(world: World) -> None:
    learnt(world, 6)
    before = world.cache.stats()
    world.walk("new", PAGES[:1])
    after = world.cache.stats()
    assert (after.hits + after.misses) - (before.hits + before.misses) == 1
    told = [event for event in world.cache.events.recent() if isinstance(event, Prefetched)]
    assert {event.hop for event in told} >= {1, 2}
    assert all(event.cost == pytest.approx(0.5) and event.size > 400 for event in told)


def test_what_is_further_ahead_stays_longer(world: World) -> None:
    learnt(world, 6)
    world.walk("new", PAGES[:1])
    now = world.clock.monotonic()
    for hop, page in enumerate(PAGES[1:4], 1):
        deadline = world.cache.answers.resident(world.encode.key(page)).deadline
        assert deadline is not None
        direct = world.prefetch.settings.ttl_seconds * 2 ** min(hop, 3)
        assert deadline - now <= direct
        assert deadline - now > 290
    told = {event.key: event.hop for event in world.cache.events.recent() if isinstance(event, Prefetched)}
    one = world.cache.answers.resident(world.encode.key(PAGES[1])).deadline
    assert one is not None
    assert told[world.encode.key(PAGES[1])] == 1
    assert one - now == pytest.approx(600, abs=15)


def test_every_transition_is_told_with_its_reason(world: World) -> None:
    learnt(world)
    world.walk("new", PAGES)
    told = [event for event in world.cache.events.recent() if isinstance(event, Prefetching)]
    assert told[0].was == "idle"
    for before, after in pairwise(told):
        assert before.state == after.was
    assert {event.reason for event in told} >= {"misses", "candidates", "done"}
    assert [move.state for move in world.prefetch.status().moves] == [event.state for event in told][-32:]
    world.cache.close()
    assert world.cache.events.recent()[-1] == Prefetching(told[-1].state, "idle", "shutdown")
    assert world.prefetch.status().state == "stopped"


def test_it_does_nothing_while_lookups_are_fast() -> None:
    world = World(latency_seconds=0.08)  # virtual time passes, but what computing took is measured in real time
    with world.cache:
        learnt(world)
        assert world.walk("new", PAGES) == PAGES
        assert world.prefetch.status().reason == "fast"
        assert world.prefetch.status().computed == 0


def test_what_a_lower_tier_holds_is_promoted_and_not_computed(tmp_path: Path) -> None:
    world = World(tmp_path, disk="64MiB")
    with world.cache:
        keys = [world.encode.key(page) for page in PAGES]
        for number in range(3):
            world.walk(f"before {number}", PAGES)
        world.cache.flush()
        memory = world.cache.answers._store.memory
        for name in ("one", "two"):
            memory.drop(keys)
            missing = world.cache.key("never there", modality="text", signature="1")
            for _ in range(5):
                assert world.cache.get(missing) is None
                world.cache.put(missing, 1)
                world.cache.invalidate(missing)
            world.walk(name, PAGES)
        status = world.prefetch.status()
        assert status.promoted >= 4
        assert status.computed == 0
        assert len(world.computed) == len(PAGES)
        tiers = [event.tier for event in world.cache.events.recent() if isinstance(event, Hit)]
        assert tiers[-1] == "memory"


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_nothing_is_brought_in_another_mode(world: World, mode: Any) -> None:
    learnt(world)
    world.cache.switch(mode)
    before = world.prefetch.status().computed
    assert world.walk("new", PAGES) == PAGES
    assert world.prefetch.status().computed == before
    world.pump()
    assert world.prefetch.status().reason in ("off", "unused", "sample", "few-misses")


def test_a_random_stream_switches_it_off() -> None:
    world = World(computations_per_second=1000.0, nodes=500, least_probability=0.05)  # so that it would bring a lot
    draw = random.Random(7)
    pages = [f"page {number}" for number in range(300)]
    with world.cache:
        steps, keys = 1200, [world.encode.key(page) for page in pages]
        for step in range(steps):
            with visit(f"visitor {step % 20}"):
                world.encode(draw.choice(pages))
            world.pump(2)
            if step % 20 == 0:
                world.cache.invalidate(keys)
            world.clock.advance(1.0)
        status = world.prefetch.status()
    assert 32 <= status.computed < 0.15 * steps
    assert status.pauses >= 2
    assert status.trust != "trusted"


def test_two_tenants_of_the_same_visitors_are_kept_apart() -> None:
    world = World()
    with world.cache:
        theirs = world.encode.options(tenant="other")
        other = [page.replace("page", "secret") for page in PAGES]
        for number in range(4):
            world.walk(f"visitor {number}", PAGES)
            world.walk(f"visitor {number}", other, theirs)
            world.cache.invalidate([world.encode.key(page) for page in PAGES])
            world.cache.invalidate([theirs.key(page) for page in other])
            world.pump(1)
        before = len(world.computed)
        world.walk("visitor 1", PAGES)
        assert not [page for page in world.computed[before:] if page.startswith("secret")]
        told = [event.key for event in world.cache.events.recent() if isinstance(event, Prefetched)]
        assert told
        known = {world.encode.key(page) for page in PAGES} | {theirs.key(page) for page in other}
        assert set(told) <= known


def test_nothing_begins_while_somebody_waits(world: World) -> None:
    learnt(world)
    other = world.cache.key("slow", modality="text", signature="1")
    assert world.cache.get(other) is None  # missed; whoever it was computes it now
    before = list(world.computed)
    with visit("new"):
        world.encode(PAGES[0])
    world.pump()
    assert world.computed == [*before, PAGES[0]]
    world.cache.put(other, "there")
    world.pump()
    assert set(world.computed[len(before) :]) >= set(PAGES[:2])


def test_nobody_is_waited_for_for_ever(world: World) -> None:
    learnt(world)
    other = world.cache.key("never", modality="text", signature="1")
    world.cache.get(other)
    with visit("new"):
        world.encode(PAGES[0])
    world.pump()
    before, done = len(world.computed), world.prefetch.status().computed
    world.clock.advance(31.0)
    world.walk("new", PAGES[1:2])
    world.pump()
    assert len(world.computed) > before + 1
    assert world.prefetch.status().computed > done


def in_a_thread(work: Callable[[], object]) -> None:
    """As somebody else, who waits for nothing here."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_runs_is_told_to_stop_and_is_begun_again_later(world: World) -> None:
    learnt(world)
    other = world.cache.key("urgent", modality="text", signature="1")
    told: list[bool] = []

    def during(text: str) -> None:
        if text == PAGES[1] and not told:
            told.append(cancelled())
            in_a_thread(lambda: world.cache.get(other))  # a real request that misses
            told.append(cancelled())
            raise Cancelled

    world.during = during
    with visit("new"):
        world.encode(PAGES[0])
    world.pump()
    assert told == [False, True]
    key = world.encode.key(PAGES[1])
    assert world.cache.peek(key) is None
    assert world.prefetch.status().cancelled == 1
    assert world.prefetch.status().failed == 0
    world.cache.put(other, 1)
    world.pump()
    assert world.cache.peek(key) is not None
    assert not cancelled()


def test_what_a_real_request_has_joined_is_not_stopped(world: World) -> None:
    learnt(world)
    told: list[bool] = []
    other = world.cache.key("urgent", modality="text", signature="1")

    def during(text: str) -> None:
        if text == PAGES[1] and not told:
            in_a_thread(lambda: world.cache.get(world.encode.key(PAGES[1])))
            in_a_thread(lambda: world.cache.get(other))
            told.append(cancelled())

    world.during = during
    with visit("new"):
        world.encode(PAGES[0])
    world.pump(2)
    assert told == [False]
    assert world.cache.peek(world.encode.key(PAGES[1])) is not None
    assert world.prefetch.status().used >= 1  # it was asked for already


def test_what_is_computed_speculatively_may_look_things_up_itself(world: World) -> None:
    part = world.cache.wrap(lambda text: np.ones(3), modality="text", signature="part", guard=False)
    told: list[bool] = []

    def during(text: str) -> None:
        part(f"{text} of {len(world.computed)}")
        told.append(cancelled())

    world.during = during
    learnt(world)
    world.walk("new", PAGES)
    assert told
    assert not any(told)
    assert world.prefetch.status().cancelled == 0


def test_no_more_is_computed_than_the_budget_allows() -> None:
    world = World(computations_per_second=0.05, saved_seconds=20.0, hops=1)  # one saved up, one each 20 seconds
    with world.cache:
        learnt(world, 5)
        began, before = world.clock.monotonic(), world.prefetch.status().computed
        for number in range(10):
            world.walk(f"new {number}", PAGES)
            world.forget(PAGES)
        passed = world.clock.monotonic() - began
        computed = world.prefetch.status().computed - before
        assert 2 <= computed <= 1 + 0.05 * passed + 1e-6


def test_an_input_that_is_too_large_is_not_remembered() -> None:
    world = World(remembered_bytes=1 << 14)
    with world.cache:
        long = [page + "x" * 5000 for page in PAGES]
        for number in range(3):
            world.walk(f"before {number}", long)
            world.forget(long)
        assert world.walk("new", long) == long
        status = world.prefetch.status()
        assert (status.remembered, status.computed) == (0, 0)


def test_visits_that_nobody_looks_at_are_lost_and_counted() -> None:
    world = World(pending=10)
    with world.cache:
        key = world.cache.key("one", modality="text", signature="1")
        for _ in range(25):
            world.cache.get(key)
        assert world.prefetch.status().lost == 15
        world.pump(1)
        assert world.prefetch.status().visits == 10


def test_visitors_without_a_name_are_told_apart_by_their_threads(world: World) -> None:
    for _ in range(2):
        in_a_thread(lambda: [world.encode(page) for page in PAGES[:3]])
    world.pump()
    assert world.prefetch.status().edges > 0
    assert not [event for event in world.cache.events.recent() if isinstance(event, Missed)][3:]


def test_one_prefetcher_is_for_one_cache(world: World) -> None:
    with pytest.raises(SettingsError, match="one cache"):
        Cache(prefetch=world.prefetch)
    fresh = BehaviourPrefetch()
    with pytest.raises(SettingsError, match="no cache yet"):
        fresh.status()
    assert fresh.pump() == 0
    fresh.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"ttl_seconds": 0}, {"hops": 0}, {"bytes_per_second": -1}, {"least_use": 1.0}, {"nice": 20},
        {"first_sample": 200}, {"computations_per_second": float("inf")}, {"tick_seconds": float("nan")},
        {"least_use": float("nan")}, {"core_share": float("nan")}, {"width": float("nan")}, {"lookback": 2.5},
        {"stale_seconds": "30"}, {"concurrent": "1"}, {"sample": True}, {"back_off_seconds": None}, {"seed": "x"},
        {"least_probability": False}, {"remembered_bytes": 1e6}, {"misses_a_minute": -1}, {"queue": 10**20},
        {"pause_seconds": 5000.0}, {"ttl_seconds": 10**400}, {"half_life_seconds": float("inf")},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_settings_that_make_no_sense(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="prefetch"):
        BehaviourSettings(**changes)


def test_an_input_that_changed_is_stored_as_what_it_is_and_not_computed_over_and_over() -> None:
    world = World()
    with world.cache:
        inputs = [np.full(10, number, np.float32) for number in range(4)]
        seen: list[float] = []

        def model(array: Any) -> Any:
            seen.append(float(array[0]))
            world.clock.advance(0.5)
            return [float(array[0])]  # a value without arrays

        encode = world.cache.wrap(model, modality="tensor", signature="1", guard=False)
        for number in range(4):
            world.walk(f"before {number}", inputs, encode)  # type: ignore[arg-type]
            world.cache.invalidate([encode.key(one) for one in inputs])
            world.pump(1)
        old = encode.key(inputs[1])
        inputs[1][:] = 99
        seen.clear()
        with visit("new"):
            encode(inputs[0])
        for _ in range(50):
            world.pump(1)
            world.clock.advance(0.3)
        assert seen.count(99) <= world.prefetch.settings.tries
        assert world.cache.peek(old) is None
        assert world.cache.peek(encode.key(inputs[1])) in (None, [99.0])


def test_what_no_tier_has_is_not_looked_for_again_and_again(tmp_path: Path) -> None:
    world = World(tmp_path, disk="64MiB", remembered_bytes=0)
    with world.cache:
        asked: list[Any] = []
        heat = world.cache.answers.heat

        def heated(keys: Any) -> None:
            asked.extend(keys)
            heat(keys)

        world.cache.answers.heat = heated  # type: ignore[method-assign]
        for number in range(4):
            world.walk(f"before {number}", PAGES)
            world.forget(PAGES)
        key = world.encode.key(PAGES[1])
        asked.clear()
        for number in range(30):
            with visit(f"new {number}"):
                world.encode(PAGES[0])
            world.pump()
            world.clock.advance(1.0)
        assert 1 <= asked.count(key) <= world.prefetch.settings.tries + 1
