"""Whatever happens, in whatever order: each lookup is one hit or one miss, with one reason, counted alike everywhere.

What a test driver counted, what the cache counts, what its events say and what its spans stand for must be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.unit.telemetry.recorded import Recorded

from mmcache import Cache, Tenant
from mmcache.missing import LONGEST
from mmcache.model.event import Hit, Missed, MissReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw
from mmcache.tiers.base import Found
from mmcache.tiers.faults import Fault, FaultyTier
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.wrapper import Wrapper

TEXTS = [f"text {n}" for n in range(6)]
VERSIONS = ["v1", "v2"]
TEXT, VERSION = st.sampled_from(TEXTS), st.sampled_from(VERSIONS)


class Moody(Wrapper):
    """A lower tier whose next `get` answers with `mood` for each key, or fails."""

    mood: MissReason | None = None

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        mood, self.mood = self.mood, None
        return self.inner.get(keys) if mood is None else [mood] * len(keys)

    def put(self, frames: Sequence[Frame], deadlines: Sequence[float | None]) -> list[Any]:
        return self.inner.put(frames, deadlines)


class Reasons(RuleBasedStateMachine):
    @initialize(shadow=st.booleans())
    def start(self, shadow: bool) -> None:
        self.clock = FakeClock()
        self.fault: Fault | None = None
        inner = MemoryTier(MemorySettings(1 << 20), LRU(), WholeThaw, clock=self.clock)
        inner.name = "remote"
        self.moody = Moody(inner)
        faulty = FaultyTier(self.moody, self.fate)
        tenants = {"default": Tenant("normal", quota="24KiB")}
        self.cache = Cache(
            memory="64KiB", policy="lru", admission="always", lower=[faulty], clock=self.clock, tenants=tenants,
            stale_while_revalidate=3.0, mode="shadow" if shadow else "on",
        )  # fmt: skip
        self.mode = self.cache.mode
        self.recorded = Recorded(self.cache)
        self.recorded.unwatched()
        self.feed = self.cache.events.feed(1 << 20)
        self.events = self.feed.__enter__()
        self.lookups = self.quiet = 0
        self.missed: Counter[MissReason] = Counter()
        self.hit = 0
        self.encoders = {
            version: self.cache.wrap(self.model, modality="text", signature=version, guard=False)
            for version in VERSIONS
        }

    def fate(self, operation: str) -> Fault | None:
        fault, self.fault = (self.fault, None) if operation == "get" else (None, self.fault)
        return fault

    def model(self, text: str) -> Any:
        if text == "text 5":
            raise LookupError("the model fails")
        return np.zeros(64 * (1 + TEXTS.index(text)))

    def key(self, text: str, version: str) -> Key:
        return self.encoders[version].key(text)

    def counted(self, count: int) -> None:
        self.lookups += count

    @rule(text=TEXT, version=VERSION, bypass=st.booleans())
    def encode(self, text: str, version: str, bypass: bool) -> None:
        self.counted(1)
        try:
            self.encoders[version].options(bypass=bypass)(text)
        except LookupError:
            assert text == "text 5"

    @rule(texts=st.lists(st.sampled_from(TEXTS[:5]), max_size=5), version=VERSION)
    def batch(self, texts: list[str], version: str) -> None:
        self.counted(len(texts))
        self.encoders[version].batch(texts)

    @rule(text=st.sampled_from(TEXTS[:5]), version=VERSION)
    def awaited(self, text: str, version: str) -> None:
        self.counted(1)
        asyncio.run(self.encoders[version].a(text))

    @rule(text=TEXT, version=VERSION, many=st.booleans(), recent=st.booleans())
    def read(self, text: str, version: str, many: bool, recent: bool) -> None:
        key = self.key(text, version)
        if many:
            since = self.clock.wall() if recent else None
            self.counted(2)
            asyncio.run(self.cache.answers.look_up_many_async([key, key], since=since))
        elif self.mode == "on":
            self.counted(1)
            self.cache.get(key)

    @rule(text=TEXT, version=VERSION)
    def find_and_count(self, text: str, version: str) -> None:
        key = self.key(text, version)
        self.counted(1)
        self.cache.answers.count(key, self.cache.answers.find(key))

    @rule(version=VERSION, reason=st.sampled_from(MissReason))
    def nobody_knows_its_key(self, version: str, reason: MissReason) -> None:
        self.counted(1)
        self.cache.get_or_compute(VoidKey.of(self.key(TEXTS[0], version).scope, reason), list)

    @rule(text=TEXT, version=VERSION, ttl=st.sampled_from([None, 1.0, 5.0]))
    def put(self, text: str, version: str, ttl: float | None) -> None:
        self.cache.put(self.key(text, version), np.zeros(900), ttl=ttl)

    @rule(text=TEXT, version=VERSION)
    def put_what_is_too_large(self, text: str, version: str) -> None:
        self.cache.put(self.key(text, version), np.zeros(1 << 15))

    @rule(text=TEXT, version=VERSION)
    def invalidate(self, text: str, version: str) -> None:
        self.cache.invalidate(self.key(text, version))

    @rule(text=TEXT, version=VERSION)
    def forget_near(self, text: str, version: str) -> None:
        self.cache._store.memory.drop([self.key(text, version)])

    @rule(mood=st.sampled_from(MissReason))
    def remote_answers(self, mood: MissReason) -> None:
        self.moody.mood = mood

    @rule(fault=st.sampled_from([Fault.ERROR, Fault.CORRUPT, Fault.SHORT, Fault.LOST_REPLY]))
    def remote_fails(self, fault: Fault) -> None:
        self.fault = fault

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(mode=st.sampled_from(["on", "on", "off"]))
    def switch(self, mode: Any) -> None:
        self.cache.switch(mode)
        self.mode = mode

    @invariant()
    def all_counts_agree(self) -> None:
        if not hasattr(self, "cache"):
            return
        for event in self.events.drain():
            if isinstance(event, Missed):
                assert isinstance(event.reason, MissReason)
                assert len(event.detail) <= LONGEST
                assert event.detail.isprintable()
                self.missed[event.reason] += 1
            self.hit += isinstance(event, Hit)
        stats = self.cache.stats()
        assert stats.misses == sum(stats.miss_reasons.values()) == self.missed.total()
        assert {MissReason(name): count for name, count in stats.miss_reasons.items()} == self.missed
        told = self.recorded.told()
        spanned = Counter(MissReason(one["cache.miss.reason"]) for one in told if not one["cache.hit"])
        assert spanned == self.missed
        assert all(("cache.miss.reason" in one) is (one["cache.outcome"] == "miss") for one in told)
        assert len(told) == self.lookups == self.missed.total() + sum(one["cache.hit"] for one in told)
        assert all(one["cache.sampling.weight"] == 1.0 for one in told)

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.feed.__exit__(None, None, None)
            self.recorded.close()
            self.cache.close()


def test_every_lookup_is_counted_once_with_one_reason() -> None:
    run_state_machine_as_test(Reasons, settings=settings(max_examples=20, stateful_step_count=30, deadline=None))


def test_each_of_the_reasons_is_counted_alike_everywhere() -> None:
    machine = Reasons()
    machine.start(shadow=False)
    try:
        for reason in MissReason:
            machine.remote_answers(reason)
            machine.find_and_count("text 0", "v1")
            machine.nobody_knows_its_key("v1", reason)
            machine.all_counts_agree()
        assert machine.missed == dict.fromkeys(MissReason, 2)
    finally:
        machine.teardown()
