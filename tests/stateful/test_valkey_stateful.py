"""Two hosts, one real server, any order of events: a lookup gives what was accepted last, or it is a miss.

Never an older value, never a mixture, whatever leases end, fences are evicted, pieces are lost, and whoever wakes late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mmcache.lab import servers
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import SharedSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import Client, Request
from mmcache.tiers.valkey.names import Names

HOSTS = 2
KEYS = [make_key(n) for n in range(2)]
SIZES = [0, 1, 90, 300, 1000]
"""Payload bytes: some whole, some in pieces."""
NAMES = Names("mmcache:")

host_numbers = st.integers(0, HOSTS - 1)
key_numbers = st.sampled_from(KEYS)
sizes = st.sampled_from(SIZES)
ttls = st.sampled_from([None, 3600.0])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as server:
            yield server.url
    except AssetError as missing:
        pytest.skip(str(missing))


@dataclass(eq=False)
class Computation:
    """Of one host, from the moment in which it became the leader."""

    host: int
    key: Key


class HostsMachine(RuleBasedStateMachine):
    """The model keeps who holds the lease and the fence of each key; either proves that a token is good."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.plain = Client(SharedSettings(self.url, timeout_seconds=30), clock=SystemClock())
        self.raw("FLUSHALL")
        self.hosts = [
            ValkeyTier.open(
                self.url,
                machine=b"machine%d" % n,
                chunk_bytes=400 if n else 700,
                timeout_seconds=30,
                lease_seconds=3600,
                heartbeat=False,
            )
            for n in range(HOSTS)
        ]
        for host in self.hosts * 2:
            host.look()
        self.latest: dict[Key, bytes] = {}
        self.torn: set[Key] = set()
        self.orphaned: set[Key] = set()
        self.lease: dict[Key, Computation] = {}
        self.fence: dict[Key, Computation] = {}
        self.led: dict[tuple[int, Key], Computation] = {}
        self.coming: list[tuple[Frame, float | None, Computation]] = []
        self.said: list[tuple[int, Frame, float | None]] = []
        self.returned: list[Computation] = []
        self.count = 0

    def raw(self, *words: Any) -> Any:
        (reply,) = self.plain.ask([Request(None, words)])
        return reply

    def teardown(self) -> None:
        for host in self.hosts:
            host.close()
        self.plain.close()

    # helpers

    def value(self, size: int) -> bytes:
        """Each is a repetition of its own pattern, so that a mixture of two shows."""
        self.count += 1
        pattern = b"<%d>" % self.count
        return (pattern * (size // len(pattern) + 1))[:size] if size else b""

    def good(self, computation: Computation) -> bool:
        return computation in (self.lease.get(computation.key), self.fence.get(computation.key))

    def outdate(self, key: Key) -> None:
        self.lease.pop(key, None)
        self.fence.pop(key, None)

    def deadline(self, ttl: float | None) -> float | None:
        return None if ttl is None else time.monotonic() + ttl

    def accepted(self, key: Key, value: bytes) -> None:
        self.latest[key] = value
        self.torn.discard(key)
        self.outdate(key)

    def check_put(self, computation: Computation, frame: Frame, said: RefuseReason | None) -> None:
        if self.good(computation):
            assert said is None
            self.accepted(computation.key, bytes(frame.payload))
        else:
            assert said is RefuseReason.INVALIDATED

    # what hosts do

    @rule(host=host_numbers, key=key_numbers)
    def begin(self, host: int, key: Key) -> None:
        won = self.hosts[host].claims.acquire(key)
        assert won == (key not in self.lease and (host, key) not in self.led)
        if won:
            self.led[host, key] = self.lease[key] = self.fence[key] = Computation(host, key)

    @precondition(lambda self: self.led)
    @rule(data=st.data(), size=sizes, ttl=ttls)
    def finish(self, data: st.DataObject, size: int, ttl: float | None) -> None:
        computation = self.led.pop(data.draw(st.sampled_from(sorted(self.led))))
        host, key = self.hosts[computation.host], computation.key
        frame = make_frame(key, self.value(size))
        self.check_put(computation, frame, host.put([frame], [self.deadline(ttl)])[0])
        host.claims.release(key)

    @precondition(lambda self: self.led)
    @rule(data=st.data(), size=sizes, ttl=ttls)
    def finish_behind(self, data: st.DataObject, size: int, ttl: float | None) -> None:
        computation = self.led.pop(data.draw(st.sampled_from(sorted(self.led))))
        host, key = self.hosts[computation.host], computation.key
        frame = host.tokens.mark(make_frame(key, self.value(size)))
        host.claims.release(key)
        self.coming.append((frame, self.deadline(ttl), computation))

    @precondition(lambda self: self.coming)
    @rule(n=st.integers(0, 9))
    def write_behind(self, n: int) -> None:
        frame, deadline, computation = self.coming.pop(n % len(self.coming))
        self.check_put(computation, frame, self.hosts[computation.host].put([frame], [deadline])[0])

    @precondition(lambda self: self.led)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        computation = self.led.pop(data.draw(st.sampled_from(sorted(self.led))))
        self.hosts[computation.host].claims.release(computation.key)
        self.returned.append(computation)

    @rule(host=host_numbers)
    def beat(self, host: int) -> None:
        self.hosts[host].claims.beat()
        for computation in [one for one in self.returned if one.host == host]:
            self.returned.remove(computation)
            if self.good(computation):
                self.outdate(computation.key)
        ours = [*self.led.values(), *(computation for _, _, computation in self.coming)]
        for computation in ours:
            if computation.host == host and self.good(computation):
                self.lease[computation.key] = self.fence[computation.key] = computation

    @rule(host=host_numbers, key=key_numbers, size=sizes, ttl=ttls)
    def put(self, host: int, key: Key, size: int, ttl: float | None) -> None:
        """As `Cache.put` does: what this process computes is given up first."""
        if (host, key) in self.led:
            self.hosts[host].claims.release(key)
            self.returned.append(self.led.pop((host, key)))
        frame = make_frame(key, self.value(size))
        assert self.hosts[host].put([frame], [self.deadline(ttl)]) == [None]
        self.accepted(key, bytes(frame.payload))

    @rule(host=host_numbers, key=key_numbers, size=sizes, ttl=ttls)
    def put_behind(self, host: int, key: Key, size: int, ttl: float | None) -> None:
        if (host, key) in self.led:
            self.hosts[host].claims.release(key)
            self.returned.append(self.led.pop((host, key)))
        frame = self.hosts[host].tokens.mark(make_frame(key, self.value(size)))
        self.said.append((host, frame, self.deadline(ttl)))

    @precondition(lambda self: self.said)
    @rule(n=st.integers(0, 9))
    def write_what_was_said(self, n: int) -> None:
        host, frame, deadline = self.said.pop(n % len(self.said))
        assert self.hosts[host].put([frame], [deadline]) == [None]
        self.accepted(frame.key, bytes(frame.payload))

    @rule(host=host_numbers, keys=st.lists(key_numbers, min_size=1, max_size=3))
    def drop(self, host: int, keys: list[Key]) -> None:
        held = sum(self.raw("EXISTS", NAMES.head(key)) for key in set(keys))
        assert self.hosts[host].drop(keys) == held
        for key in keys:
            self.latest.pop(key, None)
            self.outdate(key)

    # what befalls the server

    @rule(key=key_numbers)
    def a_lease_ends(self, key: Key) -> None:
        self.raw("DEL", NAMES.block(key)[1])
        self.lease.pop(key, None)

    @rule(key=key_numbers)
    def a_fence_is_evicted(self, key: Key) -> None:
        self.raw("DEL", NAMES.block(key)[2])
        self.fence.pop(key, None)

    @rule(key=key_numbers)
    def a_head_is_evicted(self, key: Key) -> None:
        self.raw("DEL", NAMES.head(key))
        self.latest.pop(key, None)
        self.orphaned.add(key)  # a server that evicts heads evicts pieces that nobody asks for, too

    @rule(key=key_numbers, n=st.integers(0, 9))
    def a_piece_is_evicted(self, key: Key, n: int) -> None:
        pieces = sorted(self.raw("KEYS", NAMES.head(key) + b":c:*"))
        if pieces:
            self.raw("DEL", pieces[n % len(pieces)])
            self.torn.add(key)

    @rule(key=key_numbers, n=st.integers(0, 3))
    def a_writer_died_half_way(self, key: Key, n: int) -> None:
        self.raw("SET", NAMES.head(key) + b":c:%016x:%d" % (n, n), b"half" * 100, "PX", 60_000)

    @rule()
    def all_scripts_are_forgotten(self) -> None:
        self.raw("SCRIPT", "FLUSH")

    # what must always hold

    @invariant()
    def what_is_found_is_the_latest(self) -> None:
        for host in self.hosts:
            for key, found in zip(KEYS, host.get(KEYS), strict=True):
                if isinstance(found, Found):
                    assert found.frame.intact()
                    assert bytes(found.frame.payload) == self.latest[key]
                else:
                    assert key not in self.latest or key in self.torn
                    assert found is MissReason.ABSENT

    @invariant()
    def nothing_is_left_behind_for_ever(self) -> None:
        """Pieces that belong to no head end by themselves."""
        blocks = {held.key for held in self.hosts[0].scan()}
        assert blocks == set(self.latest)
        for key in KEYS:
            if key not in blocks | self.orphaned:
                for piece in self.raw("KEYS", NAMES.head(key) + b":c:*"):
                    assert self.raw("PTTL", piece) > 0


@pytest.mark.slow
def test_two_hosts_and_whatever_befalls_the_server(url: str) -> None:
    HostsMachine.url = url
    run_state_machine_as_test(
        HostsMachine,
        settings=settings(
            max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
