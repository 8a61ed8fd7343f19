"""Deciders that raise: the caller gets its value, other tiers keep it, nothing older is served, an event says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache, Key, Settings
from mmcache.admission.base import Admit, Verdict
from mmcache.model.block import Facts
from mmcache.model.event import Failed
from mmcache.policies.lru import LRU
from mmcache.refs.counted import CountedReferences
from mmcache.testing import FakeClock
from mmcache.ttl.fixed import FixedTTL

BLOCK = "x" * 600


class Broken(Exception):
    """What plug-ins raise here."""


class Moody:
    """Raises where it is told to."""

    mood = ""

    def check(self, asked: str) -> None:
        if asked == self.mood:
            raise Broken(asked)


class MoodyPolicy(LRU, Moody):
    def add(self, key: Key, facts: Facts, now: float) -> None:
        self.check("add")
        super().add(key, facts, now)

    def touch(self, key: Key, now: float) -> None:
        self.check("touch")
        super().touch(key, now)

    def drop(self, key: Key) -> None:
        self.check("drop")
        super().drop(key)

    def victims(self, now: float) -> Iterator[Key]:
        self.check("victims")
        return super().victims(now)

    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        self.check("explain")
        return {"score": now}


class MoodyLifetime(FixedTTL, Moody):
    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        self.check("deadline")
        return super().deadline(key, facts, now)

    def used(self, key: Key, now: float) -> None:
        self.check("used")

    def ended(self, key: Key, age: float, stale: bool) -> None:
        self.check("ended")

    def explain(self, modality: str) -> Mapping[str, float | str]:
        self.check("explain")
        return {"ttl": 5.0}


class MoodyAdmission(Moody):
    mood = "judge"

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        self.check("judge")
        return Admit()

    def choose(self, waiting: Iterable[tuple[str, int]], free: int, slots: int, now: float) -> str | None:
        self.check("choose")
        return next(iter(waiting))[0]

    def began(self, tenant: str, slots: int, now: float) -> None:
        self.check("began")

    def ended(self, tenant: str, slots: int, now: float) -> None:
        self.check("ended")

    def reset(self) -> None:
        """Nothing is running any more."""


def text(cache: Cache, n: int) -> Key:
    return cache.key(str(n), modality="text", signature="v1")


def use_all_of_it(cache: Cache, clock: FakeClock, decider: Any, mood: str) -> None:
    for n in range(6):  # of which memory holds three
        cache.put(text(cache, n), "old" + BLOCK)
    cache.flush()
    decider.mood = mood
    for n in range(6):
        assert cache.get(text(cache, n)) in ("old" + BLOCK, None)
        assert cache.get_or_compute(text(cache, n), lambda: "old" + BLOCK) == "old" + BLOCK
    for n in range(6):
        cache.put(text(cache, n), "new" + BLOCK)
        assert cache.get(text(cache, n)) in ("new" + BLOCK, None)
    cache.stats()
    cache.link(text(cache, 0), [text(cache, 1)])
    str(cache.explain(text(cache, 1)))
    clock.advance(6)
    for n in range(6):
        assert cache.get(text(cache, n)) is None
        assert cache.get_or_compute(text(cache, n), partial(int, n)) == n
    cache.invalidate([text(cache, n) for n in range(6)])
    assert [cache.get(text(cache, n)) for n in range(6)] == [None] * 6
    said = [event.detail for event in cache.events.recent() if isinstance(event, Failed)]
    assert any("Broken" in detail for detail in said)


@pytest.mark.parametrize("mood", ["add", "touch", "drop", "victims", "explain"])
def test_a_policy_that_raises(tmp_path: Path, mood: str) -> None:
    clock, policy = FakeClock(), MoodyPolicy()
    with Cache(tmp_path, memory=8000, clock=clock, policy=policy, ttl=5) as cache:
        use_all_of_it(cache, clock, policy, mood)
        policy.mood = ""
        cache.flush()
        cache.put(text(cache, 0), BLOCK)
        assert cache.peek(text(cache, 0)) == BLOCK
        if mood != "drop":  # which leaves behind what it was not told
            cache.check_integrity()


@pytest.mark.parametrize("mood", ["deadline", "used", "ended", "explain"])
def test_a_lifetime_that_raises(tmp_path: Path, mood: str) -> None:
    clock, lifetime = FakeClock(), MoodyLifetime(5)
    with Cache(tmp_path, memory=8000, clock=clock, ttl=lifetime, policy="lru") as cache:
        use_all_of_it(cache, clock, lifetime, mood)
        cache.check_integrity()


def test_a_policy_that_raises_still_leaves_the_block_to_the_tiers_below(tmp_path: Path) -> None:
    policy = MoodyPolicy()
    policy.mood = "add"
    with Cache(tmp_path, policy=policy) as cache:
        assert cache.put(text(cache, 1), "value")
        assert cache.get(text(cache, 1)) == "value"
        assert cache.peek(text(cache, 1)) is None


class Vague(FixedTTL):
    def deadline(self, key: Key, facts: Facts, now: float) -> Any:
        return "soon"


def test_a_lifetime_that_gives_no_number_refuses() -> None:
    with Cache(ttl=Vague()) as cache:
        assert cache.get_or_compute(text(cache, 1), lambda: "value") == "value"
        assert not cache.put(text(cache, 1), "value")
        assert cache.get(text(cache, 1)) is None


def test_an_admission_that_raises_refuses() -> None:
    with Cache(admission=MoodyAdmission()) as cache:
        assert cache.get_or_compute(text(cache, 1), lambda: "value") == "value"
        assert not cache.put(text(cache, 1), "value")
        assert cache.get(text(cache, 1)) is None


@pytest.mark.parametrize("mood", ["choose", "began", "ended"])
def test_ranks_that_raise_let_who_waits_longest_go(mood: str) -> None:
    admission = MoodyAdmission()
    admission.mood = mood
    with Cache(admission=admission, settings=Settings(compute_slots=1)) as cache, ThreadPoolExecutor(4) as pool:
        keys = [text(cache, n) for n in range(20)]
        assert list(pool.map(lambda key: cache.get_or_compute(key, lambda: str(key)), keys)) == [*map(str, keys)]
        slots = cache.answers._fill._slots
        assert slots is not None
        assert (slots.taken_now, slots.waiting_now) == (0, 0)
        assert any(isinstance(event, Failed) and event.where == "slots" for event in cache.events.recent())


class MoodyReferences(CountedReferences, Moody):
    def leave(self, parent: Key) -> None:
        self.check("leave")


def test_references_that_raise() -> None:
    clock, references = FakeClock(), MoodyReferences()
    with Cache(memory=8000, clock=clock, references=references, ttl=5, policy="lru") as cache:
        use_all_of_it(cache, clock, references, "leave")
        cache.check_integrity()
