"""The disk tier against a plain dict: any sequence of puts, drops, expiries, reopenings and erasures."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mmcache.model.event import Evicted, MissReason
from mmcache.settings import DiskSettings
from mmcache.testing.clock import FakeClock
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier

SMALL = DiskSettings(limit_bytes=256 << 10, segment_bytes=32 << 10, index_map_bytes=1 << 18, free_space_floor=0)
KEYS = st.integers(0, 11)


class DiskModel(RuleBasedStateMachine):
    """What the tier has must be what was last put; it may have less only where it said `Evicted`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.model: dict[int, tuple[bytes, float | None]] = {}
        self.views: list[tuple[Found, bytes]] = []
        self.events: list[object] = []
        self.tier = self.open()
        self.second = self.open()

    def open(self) -> DiskTier:
        return DiskTier(self.folder, SMALL, clock=self.clock, emit=self.events.append)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), size=st.integers(0, 12_000), life=st.none() | st.integers(1, 20))
    def put(self, keys: list[int], size: int, life: int | None) -> None:
        deadline = None if life is None else self.clock.monotonic() + life
        frames = [make_frame(make_key(n), bytes([n, at]) * (size // 2)) for at, n in enumerate(keys)]
        assert self.tier.put(frames, [deadline] * len(keys)) == [None] * len(keys)
        for n, frame in zip(keys, frames, strict=True):
            self.model[n] = bytes(frame.payload), deadline

    @rule(n=KEYS)
    def drop(self, n: int) -> None:
        self.second.drop([make_key(n)])
        self.model.pop(n, None)

    @rule(seconds=st.integers(1, 10))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def swap(self) -> None:
        self.tier, self.second = self.second, self.tier

    @rule()
    def reopen(self) -> None:
        self.tier.close()
        self.tier = self.open()

    @rule(n=KEYS)
    def erase(self, n: int) -> None:
        self.tier.erase(lambda held: held.key == make_key(n))
        self.model.pop(n, None)

    @rule(n=KEYS)
    def hold(self, n: int) -> None:
        found = self.tier.get([make_key(n)])[0]
        if isinstance(found, Found):
            self.views = [*self.views[-5:], (found, bytes(found.frame.payload))]

    @invariant()
    def agrees(self) -> None:
        evicted = {event.key for event in self.events if isinstance(event, Evicted)}
        for tier in (self.tier, self.second):
            for n, found in enumerate(tier.get([make_key(n) for n in range(12)])):
                payload, deadline = self.model.get(n, (None, None))
                if isinstance(found, Found):
                    assert payload is not None
                    assert bytes(found.frame.payload) == payload
                    assert found.deadline == deadline
                    assert deadline is None or deadline > self.clock.monotonic()
                elif payload is not None and (deadline is None or deadline > self.clock.monotonic()):
                    assert found is MissReason.ABSENT
                    assert make_key(n) in evicted
        assert all(bytes(found.frame.payload) == payload for found, payload in self.views)
        report = self.tier.verify()
        assert report.ok, report
        assert report.missing == 0
        assert self.tier.stats().bytes <= SMALL.limit_bytes

    def teardown(self) -> None:
        self.tier.close()
        self.second.close()
        shutil.rmtree(self.folder)


def test_the_disk_tier_behaves_like_a_dict_that_forgets() -> None:
    run_state_machine_as_test(DiskModel, settings=settings(max_examples=12, stateful_step_count=30, deadline=None))
