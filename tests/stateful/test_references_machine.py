"""References over a real `Cache` that has room for a few blocks: whatever happens, nothing stale is served, no limit is
exceeded, and nothing is left of links when everything is gone."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mmcache import Cache
from mmcache.model.key import Key
from mmcache.refs.base import References
from mmcache.refs.counted import CountedReferences
from mmcache.refs.soft import SoftReferences
from mmcache.refs.versioned import VersionedReferences
from mmcache.testing import FakeClock

SOURCES = 3
"""Keys below this are read from a source that changes; those above are made from keys below them."""
KEYS = 9
LIMIT = 32 << 10
MOST_EDGES, MOST_GONE = 40, 8

Tracker = Callable[[int, int], References]
TRACKERS: dict[str, Tracker] = {
    "counted": CountedReferences,
    "versioned": VersionedReferences,
    "soft": SoftReferences,
}


class World:
    """Sources with a version each, and blocks that say which versions they were made from."""

    def __init__(self, references: References, policy: str) -> None:
        self.clock = FakeClock()
        self.references = references
        self.cache = Cache(memory=LIMIT, policy=policy, references=references, clock=self.clock)
        self.keys = [self.key(n) for n in range(KEYS)]
        self.recipes: dict[int, tuple[int, ...]] = {n: (n - 1,) for n in range(SOURCES, KEYS)}
        self.versions = [0] * SOURCES
        self.settled = [0] * SOURCES
        """What no lookup may be older than."""
        self.lock = threading.Lock()

    def key(self, n: int) -> Key:
        return self.cache.key(np.full(2, n, np.int64), modality="tensor", signature="model-1")

    def make(self, n: int, size: int) -> Any:
        """The block `n`, from the cache or made by its recipe; linked before what it is made from is read.

        Every other block ends soon, so that what is between a source and an answer leaves first."""

        def compute() -> Any:
            children = self.recipes.get(n, ())
            made_from = np.full(SOURCES, -1, np.int64)  # -1: not made from that source
            if n < SOURCES:
                made_from[n] = self.versions[n]
            else:
                self.cache.link(self.keys[n], [self.keys[child] for child in children])
                for child in children:
                    given = self.make(child, size)["made_from"]
                    both = (made_from >= 0) & (given >= 0)
                    made_from = np.where(both, np.minimum(made_from, given), np.maximum(made_from, given))
            return {"made_from": made_from, "filling": np.zeros(size, np.uint8)}

        return self.cache.get_or_compute(self.keys[n], compute, ttl=5.0 if n % 2 else None)

    def change(self, n: int) -> None:
        with self.lock:
            self.versions[n] += 1
            version = self.versions[n]
        self.cache.invalidate(self.keys[n])
        with self.lock:
            self.settled[n] = max(self.settled[n], version)

    def look(self, n: int) -> bool:
        """Whether block `n` is held; it must not be stale."""
        least = list(self.settled)
        found = self.cache.get(self.keys[n])
        if found is None:
            return False
        for version, floor in zip(found["made_from"], least, strict=True):
            assert version == -1 or version >= floor, f"{n} is stale: made from {found['made_from']}, now {least}"
        return True

    def fill(self, n: int, size: int) -> None:
        self.cache.put(self.key(1000 + n), {"filling": np.zeros(size, np.uint8)})

    def end(self) -> None:
        """Invalidate all: no link is left."""
        self.cache.invalidate(self.keys + self.references.parents())
        assert not self.references.parents()
        assert not any(map(self.references.holds, self.keys))
        self.cache.close()


class ReferencesMachine(RuleBasedStateMachine):
    tracker: Tracker

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @initialize(policy=st.sampled_from(["lru", "heat"]))
    def start(self, policy: str) -> None:
        self.world = World(type(self).tracker(MOST_EDGES, MOST_GONE), policy)
        self.make_all(0)

    @rule(n=st.integers(0, KEYS - 1), size=st.integers(0, 3000))
    def make(self, n: int, size: int) -> None:
        made_from = self.world.make(n, size)["made_from"]
        now = np.array(self.world.versions)
        assert ((made_from == -1) | (made_from == now)).all(), "what is made, or found, is of this moment"

    @rule(size=st.integers(0, 1500))
    def make_all(self, size: int) -> None:
        for n in range(KEYS):
            self.make(n, size)

    @rule(n=st.integers(SOURCES, KEYS - 1), data=st.data())
    def another_recipe(self, n: int, data: st.DataObject) -> None:
        self.world.recipes[n] = tuple(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3)))

    @rule(n=st.integers(0, SOURCES - 1))
    def a_source_changes(self, n: int) -> None:
        self.world.change(n)

    @rule(n=st.integers(0, KEYS - 1))
    def invalidate(self, n: int) -> None:
        self.world.cache.invalidate(self.world.keys[n])
        assert self.world.cache.get(self.world.keys[n]) is None

    @rule(parent=st.integers(SOURCES, KEYS - 1), children=st.lists(st.integers(0, KEYS - 1), max_size=3))
    def link_only(self, parent: int, children: list[int]) -> None:
        """Cycles too."""
        self.world.cache.link(self.world.keys[parent], [self.world.keys[n] for n in children])

    @rule(children=st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=3))
    def a_parent_is_never_stored(self, children: list[int]) -> None:
        self.count += 1
        self.world.cache.link(self.world.key(2000 + self.count), [self.world.keys[n] for n in children])
        assert not self.world.references.surplus()

    @rule(parent=st.integers(SOURCES, KEYS - 1))
    def a_parent_is_too_large(self, parent: int) -> None:
        self.world.make(parent, LIMIT)

    @rule(size=st.integers(0, 12_000), times=st.integers(1, 8))
    def others_need_room(self, size: int, times: int) -> None:
        for _ in range(times):
            self.count += 1
            self.world.fill(self.count, size)

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @invariant()
    def all_is_well(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.cache.check_integrity()
        for n in range(KEYS):
            self.world.look(n)
        assert len(self.world.references.parents()) <= MOST_EDGES

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()


QUICK = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
THOROUGH = settings(QUICK, derandomize=False, max_examples=150, stateful_step_count=60)


def machine(tracker: str) -> type[ReferencesMachine]:
    class Machine(ReferencesMachine):
        pass

    Machine.tracker = TRACKERS[tracker]
    return Machine


@pytest.mark.parametrize("tracker", TRACKERS)
def test_nothing_stale_is_served(tracker: str) -> None:
    run_state_machine_as_test(machine(tracker), settings=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
def test_nothing_stale_is_served_for_long(tracker: str) -> None:
    run_state_machine_as_test(machine(tracker), settings=THOROUGH)


@pytest.fixture
def nimble() -> Iterator[None]:
    """Threads take turns every few instructions, so that all orders of their steps come up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("nimble")
@pytest.mark.parametrize("tracker", TRACKERS)
def test_threads_that_make_change_evict_and_read(tracker: str) -> None:
    world = World(TRACKERS[tracker](400, 64), "lru")
    errors: list[BaseException] = []
    made, found = threading.Event(), list[int]()

    def makes(rng: random.Random) -> None:
        n = rng.randrange(SOURCES, KEYS)
        world.recipes[n] = tuple(rng.sample(range(n), 2))
        world.make(n, rng.randrange(2000))

    def changes(rng: random.Random) -> None:
        world.change(rng.randrange(SOURCES))

    def fills(rng: random.Random) -> None:
        world.fill(rng.randrange(50), rng.randrange(8000))

    def reads(rng: random.Random) -> None:
        if world.look(n := rng.randrange(KEYS)):
            found.append(n)

    def work(action: Callable[[random.Random], None], seed: int) -> None:
        rng, times = random.Random(seed), 0
        try:
            while (times < 200 or (len(found) < 200 and times < 20_000)) if action is makes else not made.is_set():
                action(rng)
                times += 1
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread below
            errors.append(error)

    def threads(*actions: Callable[[random.Random], None]) -> list[threading.Thread]:
        return [threading.Thread(target=work, args=(action, seed)) for seed, action in enumerate(actions)]

    makers, others = threads(makes, makes, makes), threads(changes, fills, reads, reads)
    for thread in (*others, *makers):
        thread.start()
    for thread in makers:
        thread.join()
    made.set()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    assert len(found) >= 200
    world.cache.check_integrity()
    for n in range(KEYS):
        world.look(n)
    world.end()
