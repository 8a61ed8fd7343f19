"""`Cache` against a plain dict, whatever the order of calls: evictions, deadlines, pins, restarts, tiers that fail."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mmcache import Cache, Tenant, plugins
from mmcache.keys.region import Region
from mmcache.model.key import Key
from mmcache.policies.lru import LRU
from mmcache.settings import DiskSettings, MemorySettings, Settings
from mmcache.testing import FakeClock, WholeThaw
from mmcache.tiers.audit import AuditTier
from mmcache.tiers.base import Tier
from mmcache.tiers.faults import Fault, FaultyTier
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.wrapper import Wrapper

MISSING = object()
Value = dict[str, Any]

# Equal contents under every tenant, namespace, signature, modality and region: whatever is mixed up will show.
NAMES = [
    (content, modality, signature, tenant, namespace, region)
    for content in (0, 1)
    for modality in ("text", "tensor")
    for signature, tenant, namespace, region in (
        ("model-1", "acme", "a", None),
        ("model-2", "acme", "a", None),
        ("model-1", "zeta", "a", None),
        ("model-1", "acme", "b", None),
        ("model-1", "acme", "a", 0),
        ("model-1", "acme", "a", 1),
    )
]
KEYS = st.integers(0, len(NAMES) - 1)


class Remote(Wrapper):
    """A tier that outlives the processes which use it."""

    def __init__(self, inner: Tier) -> None:
        super().__init__(inner)
        self.name = "remote"

    def close(self) -> None:
        """It is somebody else's to close."""


class CacheMachine(RuleBasedStateMachine):
    """The model is `held`: what each key must give, and until when."""

    memory_bytes: ClassVar[int] = 4 << 20
    disk_bytes: ClassVar[int] = 64 << 20
    quota: ClassVar[str | None] = None
    exact: ClassVar[bool] = True
    """Whether what was put must be found; else it may be, but nothing else may."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.clock = FakeClock()
        self.fault: dict[str, Fault] = {}
        remote = MemoryTier(MemorySettings(64 << 20), LRU(), WholeThaw, clock=self.clock)
        self.remote = AuditTier(Remote(remote))
        self.held: dict[int, tuple[Value, float | None]] = {}
        self.links: set[tuple[int, int]] = set()
        self.pins: list[tuple[int, AbstractContextManager[bool]]] = []
        self.count = 0
        self.hits = 0

    def lower(self) -> list[Tier]:
        return []

    @initialize(
        policy=st.sampled_from(plugins.names("policies")),
        references=st.sampled_from(plugins.names("refs")),
        apart=st.booleans(),
    )
    def start(self, policy: str, references: str, apart: bool) -> None:
        tenants = {"acme": Tenant("critical"), "zeta": Tenant("batch", quota=self.quota)} if apart else {}
        admission = "always" if self.exact else None  # with tenants that is `qos`, which may refuse
        self.deciders: dict[str, Any] = {
            "policy": policy, "references": references, "tenants": tenants, "admission": admission,
        }  # fmt: skip
        self.open()
        self.keys = [self.key(n) for n in range(len(NAMES))]
        assert len(set(self.keys)) == len(self.keys)

    def open(self) -> None:
        memory = MemorySettings(limit_bytes=self.memory_bytes)
        disk = DiskSettings(segment_bytes=1 << 20, index_map_bytes=1 << 20)
        self.cache = Cache(
            self.folder, disk=self.disk_bytes, clock=self.clock, lower=self.lower(), **self.deciders,
            settings=Settings(memory=memory, disk=disk),
        )  # fmt: skip
        self.hits = 0

    def key(self, n: int) -> Key:
        content, modality, signature, tenant, namespace, region = NAMES[n]
        source: Any = f"content {content}" if modality == "text" else np.full((2, 8), content, np.float32)
        return self.cache.key(
            source, modality=modality, signature=signature, tenant=tenant, namespace=namespace,
            region=None if region is None else Region.whole(8, 8).crop((region, 0, 4 + region, 4)),
        )  # fmt: skip

    def value(self, n: int, size: int) -> Value:
        self.count += 1
        return {"key": n, "count": self.count, "data": np.full(size, self.count, np.float32)}

    def expected(self, n: int) -> Value | None:
        value, deadline = self.held.get(n, (None, None))
        return None if deadline is not None and deadline <= self.clock.monotonic() else value

    def judge(self, n: int, given: Any, *, may_miss: bool = False) -> None:
        """`given` is what a lookup gave."""
        expected = self.expected(n)
        if given is MISSING:
            assert expected is None or may_miss or not self.exact, f"{NAMES[n]} was put and is not found"
            return
        self.hits += 1
        assert expected is not None, f"{NAMES[n]} gave a value that nobody put, or that has ended: {given}"
        assert (given["key"], given["count"]) == (n, expected["count"])
        assert given["data"].tobytes() == expected["data"].tobytes()

    @rule(n=KEYS, size=st.integers(0, 600), ttl=st.sampled_from([None, None, 5.0, 50.0]))
    def put(self, n: int, size: int, ttl: float | None) -> None:
        value = self.value(n, size)
        kept = self.cache.put(self.keys[n], value, ttl=ttl)
        assert kept or not self.exact
        self.held[n] = value, None if ttl is None else self.clock.monotonic() + ttl

    @rule(n=KEYS)
    def get(self, n: int) -> None:
        self.judge(n, self.cache.get(self.keys[n], MISSING))

    @rule(n=KEYS)
    def peek(self, n: int) -> None:
        self.judge(n, self.cache.peek(self.keys[n], MISSING), may_miss=True)

    @rule(ns=st.lists(KEYS, max_size=8))
    def get_many(self, ns: list[int]) -> None:
        for n, look in zip(ns, self.cache.answers.look_up([self.keys[n] for n in ns]), strict=True):
            self.judge(n, MISSING if look.make is None else look.make())

    @rule(n=KEYS, size=st.integers(0, 600), ttl=st.sampled_from([None, 5.0]), twin=st.booleans())
    def get_or_compute(self, n: int, size: int, ttl: float | None, twin: bool) -> None:
        computed: list[Value] = []

        def compute() -> Value:
            computed.append(self.value(n, size))
            return computed[-1]

        given: Any
        if twin:
            given = asyncio.run(self.cache.a.get_or_compute(self.keys[n], compute, ttl=ttl))
        else:
            given = self.cache.get_or_compute(self.keys[n], compute, ttl=ttl)
        self.judge(n, MISSING if computed else given)
        if computed:
            assert given["count"] == computed[0]["count"]
            assert len(computed) == 1
            self.held[n] = computed[0], None if ttl is None else self.clock.monotonic() + ttl

    @rule(n=KEYS)
    def a_failed_computation_reaches_its_caller_and_changes_nothing(self, n: int) -> None:
        def fail() -> Value:
            raise KeyError("the model is out of memory")

        try:
            given = self.cache.get_or_compute(self.keys[n], fail)
        except KeyError:
            given = MISSING
        self.judge(n, given)

    @rule(n=KEYS)
    def bypass(self, n: int) -> None:
        value = self.value(n, 1)
        assert self.cache.get_or_compute(self.keys[n], lambda: value, bypass=True) is value

    @rule(n=KEYS)
    def switched_off_nothing_is_served_or_stored(self, n: int) -> None:
        self.cache.switch("off")
        assert self.cache.get(self.keys[n], MISSING) is MISSING
        assert not self.cache.put(self.keys[n], self.value(n, 1))
        self.cache.switch("on")

    @rule(n=KEYS)
    def explain(self, n: int) -> None:
        assert self.cache.explain(self.keys[n]) is not None

    @rule(ns=st.lists(KEYS, min_size=1, max_size=3))
    def invalidate(self, ns: list[int]) -> None:
        reached = set(ns)
        while more := {parent for parent, child in self.links if child in reached} - reached:
            reached |= more
        self.cache.invalidate([self.keys[n] for n in ns])
        for n in reached:
            self.held.pop(n, None)
        self.links = {link for link in self.links if link[0] not in reached}

    @rule(parent=KEYS, children=st.lists(KEYS, min_size=1, max_size=2))
    def link(self, parent: int, children: list[int]) -> None:
        self.cache.link(self.keys[parent], [self.keys[n] for n in children])
        self.links |= {(parent, child) for child in children}

    @rule(n=KEYS)
    def pin(self, n: int) -> None:
        pin = self.cache.pin(self.keys[n])
        if pin.__enter__():
            self.pins.append((n, pin))
        else:
            pin.__exit__(None, None, None)

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        _, pin = self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1)))
        pin.__exit__(None, None, None)

    @rule(seconds=st.sampled_from([0.5, 4.5, 45.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-3600.0, 3600.0]))
    def step_the_wall_clock(self, seconds: float) -> None:
        self.clock.step_wall(seconds)

    @rule()
    def flush(self) -> None:
        self.cache.flush()

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()
        assert [self.key(n) for n in range(len(NAMES))] == self.keys
        self.links.clear()

    def close(self) -> None:
        while self.pins:
            self.pins.pop()[1].__exit__(None, None, None)
        self.cache.close()

    @invariant()
    def parts_agree(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        hits = self.cache.stats().hits
        # A leader that finds the value after all, when it looks once more, has had its miss counted.
        assert hits == self.hits if self.exact else hits <= self.hits
        assert not self.remote.violations

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.close()
        shutil.rmtree(self.folder)


class CrampedMachine(CacheMachine):
    """Memory for a few blocks only: all others must come back from the disk."""

    memory_bytes = 12 << 10


FAULTS = [(operation, fault) for operation in ("get", "put", "drop") for fault in Fault]


class FaultyMachine(CacheMachine):
    """No disk, cramped memory, and below it a tier that fails and lies."""

    memory_bytes = 12 << 10
    disk_bytes = 0
    quota = "5KiB"
    exact = False

    def lower(self) -> list[Tier]:
        return [FaultyTier(self.remote, lambda operation: self.fault.pop(operation, None))]

    @rule(wrong=st.sampled_from(FAULTS))
    def next_call_goes_wrong(self, wrong: tuple[str, Fault]) -> None:
        operation, fault = wrong
        self.fault[operation] = fault

    def close(self) -> None:
        # What a tier failed to forget is remembered by the process only, and dropped when it closes: let it succeed.
        self.fault.clear()
        super().close()


QUICK = settings(
    max_examples=15,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
THOROUGH = settings(QUICK, derandomize=False, max_examples=150, stateful_step_count=60)


@pytest.mark.parametrize("machine", [CacheMachine, CrampedMachine, FaultyMachine])
def test_cache_equals_a_dict(machine: type[CacheMachine]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [CacheMachine, CrampedMachine, FaultyMachine])
def test_cache_equals_a_dict_for_long(machine: type[CacheMachine]) -> None:
    run_state_machine_as_test(machine, settings=THOROUGH)
