"""One leader of all hosts, on real servers and real processes that are paused and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mmcache.lab import servers
from mmcache.lab.servers.process import until
from mmcache.model.errors import AssetError
from mmcache.model.event import Event, Failed, MissReason, RefuseReason
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.names import Names

KEY = make_key(1)
NAMES = Names("mmcache:")
HEAD, LEASE, FENCE = NAMES.block(KEY)
LEASE_SECONDS = 60.0
"""Nobody loses it because a busy machine stood still; where it is to end, the test sees to that."""
SHORT_SECONDS = 3.0
SIZES = [10, 40_000, 200_000]
"""Payload bytes: a block in one script, one that is staged, one in pieces."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def here(server: servers.Server) -> Iterator[ValkeyTier]:
    server.ask("FLUSHALL")
    tier = ValkeyTier.open(server.url, lease_seconds=LEASE_SECONDS, timeout_seconds=30, heartbeat=False)
    yield tier
    tier.close()


HOST = """
import sys
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.valkey import ValkeyTier
tier = ValkeyTier.open(sys.argv[1], lease_seconds=float(sys.argv[2]), timeout_seconds=30, chunk_bytes=100_000)
key, marked = make_key(1), None
for line in sys.stdin:
    verb, size = line.split()
    if verb == "acquire":
        print(tier.claims.acquire(key), flush=True)
    elif verb == "put":
        print(tier.put([make_frame(key, b"late" * (int(size) // 4))], [None])[0], flush=True)
    elif verb == "mark":
        marked = tier.tokens.mark(make_frame(key, b"late" * (int(size) // 4)))
        tier.claims.release(key)
        print(marked.token is not None, flush=True)
    else:
        print(tier.put([marked], [None])[0], flush=True)
"""


class Host:
    """A process of another host, which does what it is told."""

    def __init__(self, url: str, lease_seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, url, str(lease_seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, verb: str, size: int = 0) -> None:
        assert self.process.stdin is not None
        print(verb, size, file=self.process.stdin, flush=True)

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, verb: str, size: int = 0) -> str:
        self.tell(verb, size)
        return self.heard()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)
        if number is signal.SIGSTOP:
            assert until(lambda: self._state() == "T")

    def _state(self) -> str:
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def another(url: str, lease_seconds: float = LEASE_SECONDS) -> Iterator[Host]:
    host = Host(url, lease_seconds)
    try:
        yield host
    finally:
        host.end()


def ends(server: servers.Server) -> Callable[[], bool]:
    return lambda: server.ask("EXISTS", LEASE) == 0


def runs_out(server: servers.Server) -> Callable[[], bool]:
    """As if its time was over. Who still renews it keeps it."""

    def ended() -> bool:
        server.ask("PEXPIRE", LEASE, 1)
        return ends(server)()

    return ended


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("behind", [True, False])
def test_a_paused_leader_that_wakes_late_overwrites_nothing(
    here: ValkeyTier, server: servers.Server, size: int, behind: bool
) -> None:
    with another(server.url) as host:
        assert host.ask("acquire") == "True"
        if behind:
            assert host.ask("mark", size) == "True"
        assert not here.claims.acquire(KEY)
        host.signal(signal.SIGSTOP)
        assert until(runs_out(server)), "nobody renews it"
        assert here.claims.acquire(KEY)
        assert here.put([make_frame(KEY, b"newer")], [None]) == [None]
        host.tell("write" if behind else "put", size)
        host.signal(signal.SIGCONT)
        assert host.heard() == "invalidated"
    (found,) = here.get([KEY])
    assert isinstance(found, Found)
    assert bytes(found.frame.payload) == b"newer"
    assert sorted(server.ask("KEYS", "*")) == [HEAD, NAMES.clock], "nor leaves it anything behind"


def test_a_paused_leader_stores_nothing_that_was_dropped_meanwhile(here: ValkeyTier, server: servers.Server) -> None:
    with another(server.url) as host:
        assert host.ask("acquire") == "True"
        host.signal(signal.SIGSTOP)
        assert here.drop([KEY]) == 0
        host.tell("put", 10)
        host.signal(signal.SIGCONT)
        assert host.heard() == "invalidated"
    assert here.get([KEY]) == [MissReason.ABSENT]


def test_a_paused_leader_that_nobody_replaced_stores_what_it_computed(here: ValkeyTier, server: servers.Server) -> None:
    with another(server.url) as host:
        assert host.ask("acquire") == "True"
        host.signal(signal.SIGSTOP)
        assert until(runs_out(server))
        host.tell("put", 8)
        host.signal(signal.SIGCONT)
        assert host.heard() == "None"
    assert isinstance(here.get([KEY])[0], Found)


def test_a_living_leader_keeps_its_lease_for_as_long_as_it_computes(here: ValkeyTier, server: servers.Server) -> None:
    renewed = 0
    with another(server.url, SHORT_SECONDS) as host:
        assert host.ask("acquire") == "True"
        left = server.ask("PTTL", LEASE)
        while renewed < 4:  # more than one lease
            assert not here.claims.acquire(KEY)
            now = server.ask("PTTL", LEASE)
            assert 0 < now <= SHORT_SECONDS * 1000
            renewed += now > left
            left = now
        assert host.ask("put", 8) == "None"
    assert here.claims.acquire(KEY), "the put has ended it"


def test_a_killed_leader_is_replaced_within_one_lease(here: ValkeyTier, server: servers.Server) -> None:
    with another(server.url, SHORT_SECONDS) as host:
        assert host.ask("acquire") == "True"
        assert not here.claims.acquire(KEY)
        host.signal(signal.SIGKILL)
        host.process.wait()
        assert server.ask("PTTL", LEASE) <= SHORT_SECONDS * 1000, "the server ends it by itself"
        left, polls = SHORT_SECONDS * 1000, 0
        while not here.claims.acquire(KEY):
            now = server.ask("PTTL", LEASE)
            assert now <= left, "nobody renews it"
            left, polls = now, polls + 1
        assert here.put([make_frame(KEY)], [None]) == [None]


# in one process


@pytest.fixture
def there(server: servers.Server, here: ValkeyTier) -> Iterator[ValkeyTier]:
    tier = ValkeyTier.open(
        server.url, lease_seconds=60, timeout_seconds=30, heartbeat=False, chunk_bytes=1000, machine=b"machine2"
    )
    yield tier
    tier.close()


def test_one_of_two_leads_and_gives_back(here: ValkeyTier, there: ValkeyTier) -> None:
    assert here.claims.acquire(KEY)
    assert not here.claims.acquire(KEY), "nor twice in one process"
    assert not there.claims.acquire(KEY)
    there.claims.release(KEY)
    here.claims.release(KEY)
    here.claims.beat()
    assert there.claims.acquire(KEY)
    here.claims.beat()
    assert not here.claims.acquire(KEY)


def test_many_at_once(here: ValkeyTier, there: ValkeyTier) -> None:
    keys = [make_key(n) for n in range(20)]
    assert there.claims.acquire_all(keys[::2]) == [True] * 10
    assert here.claims.acquire_all(keys) == [False, True] * 10
    assert here.claims.acquire_all([]) == []


@pytest.mark.parametrize("overtake", [
    lambda tier: tier.put([make_frame(KEY, b"newer")], [None]),
    lambda tier: tier.drop([KEY]),
])  # fmt: skip
def test_whoever_puts_or_drops_overtakes_a_computation(
    here: ValkeyTier, there: ValkeyTier, server: servers.Server, overtake: Callable[[ValkeyTier], Any]
) -> None:
    assert here.claims.acquire(KEY)
    overtake(there)
    here.claims.beat()
    assert here.stats().detail["lost_leases"] == 1
    assert here.put([make_frame(KEY, b"older")], [None]) == [RefuseReason.INVALIDATED]
    here.claims.release(KEY)
    assert here.stats().detail["overtaken_writes"] == 1
    assert [isinstance(found, Found) for found in here.get([KEY])] == [server.ask("EXISTS", HEAD) == 1]


@pytest.mark.parametrize("evicted", [[LEASE], [FENCE], [LEASE, FENCE]])
def test_a_server_that_evicts_a_lease_or_a_fence_costs_nothing_one_that_evicts_both_a_put(
    here: ValkeyTier, server: servers.Server, evicted: list[bytes]
) -> None:
    assert here.claims.acquire(KEY)
    server.ask("DEL", *evicted)
    said = here.put([make_frame(KEY)], [None])
    assert said == [RefuseReason.INVALIDATED if len(evicted) == 2 else None]


def test_what_cannot_be_stored_gives_its_lease_back(
    here: ValkeyTier, there: ValkeyTier, server: servers.Server
) -> None:
    for frame in (make_frame(KEY, bytes(1000)), make_frame(KEY, tenant="t" * 70_000)):
        small = ValkeyTier.open(server.url, largest_bytes=900, heartbeat=False, timeout_seconds=30)
        assert small.claims.acquire(KEY)
        assert small.put([frame], [None])[0] in (RefuseReason.TOO_LARGE, RefuseReason.UNSUPPORTED)
        assert there.claims.acquire(KEY)
        there.drop([KEY])
        there.claims.release(KEY)
        small.close()


def test_a_server_that_is_down_stops_nobody_and_what_was_computed_blindly_is_not_stored(tmp_path: Any) -> None:
    events: list[Event] = []
    try:
        with servers.server(tmp_path) as mine:
            tier = ValkeyTier.open(mine.url, timeout_seconds=5, rest_seconds=1e-9, emit=events.append, heartbeat=False)
            assert tier.put([make_frame(KEY, b"older")], [None]) == [None]
            mine.kill()
            assert tier.claims.acquire(KEY)
            assert not tier.claims.acquire(KEY)
            mine.restart()
            other = make_key(2)
            assert tier.claims.acquire(other)
            assert tier.put([make_frame(KEY, b"blind"), make_frame(other)], [None, None]) == [
                RefuseReason.TIER_DOWN, None,
            ]  # fmt: skip
            tier.claims.release(KEY)
            assert tier.put([make_frame(KEY, b"said")], [None]) == [None], "somebody's word needs no token"
            detail = tier.stats().detail
            assert (detail["blind_computations"], detail["lost_writes"], detail["leases"]) == (1, 1, 0)
            tier.close()
    except AssetError as missing:
        pytest.skip(str(missing))
    assert any(isinstance(event, Failed) and event.where == "valkey" for event in events)


def test_the_thread_renews_gives_back_and_ends_with_the_tier(server: servers.Server) -> None:
    server.ask("FLUSHALL")
    tier = ValkeyTier.open(server.url, lease_seconds=0.03, timeout_seconds=30)
    assert tier.claims.acquire(KEY)
    fences = []
    for _ in range(3):  # each renewal sets the fence anew
        server.ask("PEXPIRE", FENCE, 1_000_000)
        assert until(lambda: server.ask("PTTL", FENCE) > 2_000_000)
        fences.append(server.ask("GET", FENCE))
    assert len(set(fences)) == 1
    tier.claims.release(KEY)
    assert until(ends(server))
    tier.close()
    assert "mmcache-leases" not in {thread.name for thread in threading.enumerate()}
    tier.claims.release(KEY)


def test_a_forked_child_holds_nothing_and_renews_nothing(here: ValkeyTier, server: servers.Server) -> None:
    assert here.claims.acquire(KEY)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ours = here.claims.acquire(KEY)  # asks over a connection of its own: it is the parent's
            status = 0 if not ours and here.tokens.due() == [] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert here.put([make_frame(KEY)], [None]) == [None]
