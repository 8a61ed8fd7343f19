"""A cache with a prefetcher, whatever the order of calls: all that is served was computed from what was asked about,
by the model, and for the tenant, that it was asked for; and nothing is brought for a tenant that never looked at it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mmcache import Cache, visit
from mmcache.encoder import Encoder
from mmcache.model.event import Prefetched
from mmcache.model.key import Key
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings
from mmcache.settings import MemorySettings, Settings
from mmcache.testing import FakeClock

EAGER = BehaviourSettings(
    latency_seconds=0.0,
    misses_a_minute=0.0,
    computations_per_second=1000.0,
    stale_seconds=600.0,
    least_use=0.01,
    lookback=1,
)
WAYS = [("model-1", "acme", "a"), ("model-2", "acme", "a"), ("model-1", "zeta", "a"), ("model-1", "acme", "b")]
BUFFERS = 4


class PrefetchMachine(RuleBasedStateMachine):
    """Buffers are written over and over, as a video's frames are; all tenants call their sessions alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.clock = FakeClock()
        self.buffers = [np.full((4, 4), float(n), np.float32) for n in range(BUFFERS)]
        self.looked: set[tuple[str, Key]] = set()
        self.brought = 0
        self.open(small=False)

    @initialize(small=st.booleans())
    def sized(self, small: bool) -> None:
        self.again(small)

    def open(self, small: bool) -> None:
        self.prefetcher = BehaviourPrefetch(EAGER, threaded=False)
        memory = MemorySettings(limit_bytes=4096 if small else 1 << 20)
        self.cache = Cache(
            self.folder, prefetch=self.prefetcher, clock=self.clock, settings=Settings(memory=memory), policy="lru"
        )
        self.feed = self.cache.events.feed()
        self.heard = self.feed.__enter__()
        self.encoders = [self.encoder(*way) for way in WAYS]

    def encoder(self, signature: str, tenant: str, namespace: str) -> Encoder:
        def encode(given: Any) -> Any:
            self.clock.advance(0.5)
            return model(signature, given)

        return self.cache.wrap(
            encode, modality="tensor", signature=signature, tenant=tenant, namespace=namespace, guard=False
        )

    @rule(way=st.integers(0, len(WAYS) - 1), at=st.integers(0, BUFFERS - 1), who=st.sampled_from("xy"))
    def look(self, way: int, at: int, who: str) -> None:
        source, encode = self.buffers[at], self.encoders[way]
        self.looked.add((WAYS[way][1], encode.key(source)))
        with visit(who):
            given = encode(source)
        assert given.tolist() == model(WAYS[way][0], source).tolist()

    @rule(way=st.integers(0, len(WAYS) - 1), who=st.sampled_from("xy"))
    def look_at_all(self, way: int, who: str) -> None:
        """The way that most visitors go, so that there is something to foresee."""
        for at in range(BUFFERS):
            self.look(way, at, who)

    @rule(way=st.integers(0, len(WAYS) - 1), who=st.sampled_from("xy"))
    def come_back(self, way: int, who: str) -> None:
        """After all of it has gone."""
        for _ in range(2):
            self.look_at_all(way, who)
            self.wait(2.0)
        self.invalidate_all(way)
        self.look(way, 0, who)
        self.foresee()

    @rule(at=st.integers(0, BUFFERS - 1), value=st.integers(0, 5))
    def write(self, at: int, value: int) -> None:
        self.buffers[at][:] = value

    @rule(way=st.integers(0, len(WAYS) - 1), at=st.integers(0, BUFFERS - 1))
    def invalidate(self, way: int, at: int) -> None:
        self.cache.invalidate(self.encoders[way].key(self.buffers[at]))

    @rule(way=st.integers(0, len(WAYS) - 1))
    def invalidate_all(self, way: int) -> None:
        self.cache.invalidate([self.encoders[way].key(buffer) for buffer in self.buffers])

    @rule(seconds=st.sampled_from([0.1, 2.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def foresee(self) -> None:
        for _ in range(8):
            self.prefetcher.pump()
        for event in self.heard.drain():
            if isinstance(event, Prefetched):
                scope = self.cache.scopes.find(event.key)
                assert scope is not None
                assert (scope.tenant, event.key) in self.looked or self.rewritten(scope.tenant, event.key)
                self.brought += 1

    def rewritten(self, tenant: str, key: Key) -> bool:
        """Whether it is what a buffer that this tenant looked at holds by now."""
        return any(
            key == encode.key(buffer)
            for way, encode in zip(WAYS, self.encoders, strict=True)
            for buffer in self.buffers
            if way[1] == tenant
        )

    @rule(small=st.booleans())
    def again(self, small: bool) -> None:
        self.end()
        self.open(small)

    def end(self) -> None:
        self.feed.__exit__(None, None, None)
        self.cache.check_integrity()
        self.cache.close()

    def teardown(self) -> None:
        self.end()
        TOTAL.append(self.brought)
        shutil.rmtree(self.folder)


TOTAL: list[int] = []


def model(signature: str, given: Any) -> Any:
    """Says which model it is, and what it saw."""
    return np.array([float(signature[-1]), float(np.asarray(given).mean())], np.float32)


@pytest.mark.slow
def test_what_is_served_is_what_was_asked_for() -> None:
    TOTAL.clear()
    run_state_machine_as_test(
        PrefetchMachine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    assert sum(TOTAL) > 50, sum(TOTAL)  # or nothing was tried
