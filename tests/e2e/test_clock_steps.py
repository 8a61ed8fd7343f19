"""No step and no skew of a server's clock ends a block early or lets it live a second too long.

The servers are real processes, each with a clock of its own (libfaketime). Hours pass at once: the servers' clocks and
those of the machines, which are imitated, are set forward together. Where a deadline lies is asked, not waited for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mmcache.lab import servers
from mmcache.lab.clock_night import spend
from mmcache.lab.servers import Elsewhere, Server
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.watch import LOOK_SECONDS

redis = pytest.importorskip("redis", reason="needs mmcache[valkey]")

SKEWS = (0.042, -0.029, 0.067)
LATEST = 1.0
TTL = 60.0


class Node:
    """A server whose clock is skewed, and can be set."""

    def __init__(self, server: Server, skew: float, passed: list[float]) -> None:
        self.server, self.skew, self.passed = server, skew, passed

    def step(self, by: float) -> None:
        self.skew += by
        self.follow()

    def follow(self) -> None:
        self.server.set_clock(self.skew + self.passed[0])


class Fleet:
    """Three nodes and the machines that use them."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.passed = [0.0]
        self.opened = opened
        self.nodes = [
            Node(opened.enter_context(servers.server(folder / str(n), skew)), skew, self.passed)
            for n, skew in enumerate(SKEWS)
        ]

    def advance(self, seconds: float) -> None:
        self.passed[0] += seconds
        for node in self.nodes:
            node.follow()

    def machine(self, number: int) -> Machine:
        return Machine(self, number)


class Machine:
    """One process on a machine of its own, with a tier for each node."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.clock = Elsewhere(1e4 * number, 3600.0 * number, fleet.passed)
        self.tiers = [
            ValkeyTier.open(
                node.server.url, clock=self.clock, machine=b"machine%d" % number, asleep=lambda: 0.0,
                timeout_seconds=30,
            )
            for node in fleet.nodes
        ]  # fmt: skip
        for tier in self.tiers:
            fleet.opened.callback(tier.close)

    def write(self, content: int, ttl: float) -> float:
        """Store a block in every node; when it ends, in this machine's time."""
        deadline = self.clock.monotonic() + ttl
        for tier in self.tiers:
            assert tier.put([make_frame(make_key(content))], [deadline]) == [None]
        return deadline

    def look(self) -> None:
        """Any use will do, once the last look is a while ago."""
        self.fleet.advance(LOOK_SECONDS)
        for tier in self.tiers:
            tier.get([make_key(999_999)])

    def read(self, content: int) -> list[Found | MissReason]:
        return [tier.get([make_key(content)])[0] for tier in self.tiers]

    def finds(self, content: int, writer: Machine, deadline: float) -> None:
        """All nodes still serve it, until its deadline and no second longer."""
        for found in self.read(content):
            assert isinstance(found, Found), found
            assert found.deadline is not None
            late = (found.deadline - self.clock.began) - (deadline - writer.clock.began)
            assert -1e-6 <= late <= LATEST


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as opened:
        try:
            yield Fleet(tmp_path, opened)
        except AssetError as missing:
            pytest.skip(str(missing))


def acquainted(*machines: Machine) -> None:
    for _ in range(2):
        for machine in machines:
            machine.look()


def test_steps_back_and_forth_move_no_deadline_not_for_those_who_join_later(fleet: Fleet) -> None:
    one, two, gone = (fleet.machine(n) for n in (1, 2, 3))
    acquainted(one, two, gone)
    written = {n: (machine, machine.write(n, TTL)) for n, machine in enumerate((one, two, gone))}
    fleet.advance(TTL / 3)
    fleet.nodes[1].step(-120)
    fleet.nodes[2].step(+120)
    acquainted(one, two)
    later = fleet.machine(4)
    assert set(later.read(0)) == {MissReason.ABSTAINED}, "nobody has vouched for it yet"
    one.look()
    for machine in (one, two, later):
        for content, (writer, deadline) in written.items():
            machine.finds(content, writer, deadline)
    fleet.nodes[1].step(+120)  # somebody puts the clock right
    acquainted(two, later)
    fleet.advance(TTL / 3)
    for machine in (one, two, later):
        for content, (writer, deadline) in written.items():
            machine.finds(content, writer, deadline)
    fleet.advance(TTL / 3 + LATEST)
    for machine in (one, two, later):
        assert {found for content in written for found in machine.read(content)} == {MissReason.EXPIRED}


def test_the_servers_own_expiry_does_what_ours_must_not(fleet: Fleet) -> None:
    clients = [redis.Redis(port=node.server.port) for node in fleet.nodes]
    for client in clients:
        client.set("plain", 1, px=int(TTL * 1000))
    fleet.nodes[1].step(-120)
    fleet.nodes[2].step(+120)

    def alive() -> list[bool]:
        # a server looks at its clock once a round of its loop, so it is asked some times
        return [all(client.exists("plain") for _ in range(200)) for client in clients]

    assert alive() == [True, True, False], "died early"
    fleet.advance(TTL + 1)
    assert alive() == [False, True, False], "lives too long"
    for client in clients:
        client.close()


def test_a_step_that_nobody_saw_is_no_guess_and_one_who_was_away_can_tell(fleet: Fleet) -> None:
    one, two = fleet.machine(1), fleet.machine(2)
    acquainted(one, two)
    deadline = one.write(1, TTL)
    for node in fleet.nodes:
        node.step(-120)
    later = fleet.machine(3)
    acquainted(later)
    assert set(later.read(1)) == {MissReason.ABSTAINED}
    one.finds(1, one, deadline)  # its own block needs no server's clock
    two.look()
    later.finds(1, one, deadline)


def test_a_new_process_of_a_machine_goes_on_where_the_last_one_was(fleet: Fleet) -> None:
    one, two = fleet.machine(1), fleet.machine(2)
    acquainted(one, two)
    mine, theirs = one.write(1, TTL), two.write(2, TTL)
    for tier in (*one.tiers, *two.tiers):
        tier.close()
    for node in fleet.nodes:
        node.step(-120)
    again = fleet.machine(1)
    again.finds(1, one, mine)
    again.finds(2, two, theirs)
    fleet.advance(TTL + LATEST)
    assert set(again.read(1) + again.read(2)) == {MissReason.EXPIRED}


def test_what_is_written_while_a_step_is_unseen_ends_in_time(fleet: Fleet) -> None:
    one, two = fleet.machine(1), fleet.machine(2)
    acquainted(one, two)
    fleet.nodes[0].step(-120)
    fleet.nodes[2].step(+120)
    deadline = two.write(7, TTL)
    acquainted(one, two)
    one.finds(7, two, deadline)
    fleet.advance(TTL + LATEST)
    assert set(one.read(7)) == {MissReason.EXPIRED}


def test_a_step_forward_beyond_the_spare_seconds_loses_blocks_and_serves_nothing_stale(fleet: Fleet) -> None:
    one = fleet.machine(1)
    one.write(1, TTL)
    for node in fleet.nodes:
        node.step(+3600)
    assert set(one.read(1)) == {MissReason.ABSENT}


CLIENT = """
import sys
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.valkey import ValkeyTier
import time
tier = ValkeyTier.open("valkey://127.0.0.1:" + sys.argv[1], machine=sys.argv[2].encode(), timeout_seconds=30)
for line in sys.stdin:
    verb, content, ttl = line.split()
    key = make_key(int(content))
    if verb == "put":
        deadline = time.monotonic() + float(ttl)
        assert tier.put([make_frame(key)], [deadline]) == [None]
        print(deadline, flush=True)
    elif verb == "wall":
        print(time.time(), flush=True)
    else:
        tier.look()
        (found,) = tier.get([key])
        print(getattr(found, "deadline", found), flush=True)
"""


class Process:
    """A client process whose wall clock is its own. The monotonic clock is this machine's, so its answers compare."""

    def __init__(self, folder: Path, port: int, name: str, ahead: float) -> None:
        self.offsets = folder / name
        environment = os.environ | servers.clock_of(self.offsets, ahead)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(port), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def ask(self, verb: str, content: int = 0, ttl: float = 0.0) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(verb, content, ttl, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def test_client_processes_whose_own_wall_clocks_are_wrong_and_are_set(tmp_path: Path) -> None:
    with ExitStack() as opened:
        try:
            server = opened.enter_context(servers.server(tmp_path / "server", 0.042))
            one, two = (
                Process(tmp_path, server.port, name, ahead) for name, ahead in (("machine1", 0.08), ("machine2", -7.0))
            )
        except AssetError as missing:
            pytest.skip(str(missing))
        for process in (one, two):
            opened.callback(process.close)
        for _ in range(2):
            one.ask("get", 99)
            two.ask("get", 99)
        ends = {1: float(one.ask("put", 1, 600)), 2: float(two.ask("put", 2, 600))}
        servers.set_clock(one.offsets, -3600)
        servers.set_clock(two.offsets, 86_400)
        assert float(two.ask("wall")) - float(one.ask("wall")) > 86_400, "the clocks are really wrong"
        server.set_clock(-120)
        one.ask("get", 99)
        for process in (one, two):
            for content, end in ends.items():
                assert -1e-6 <= float(process.ask("get", content)) - end <= LATEST


@pytest.mark.slow
def test_a_night_in_real_seconds(tmp_path: Path) -> None:
    try:
        night = spend(tmp_path, seed=0, keys=60, seconds=9.0)
    except AssetError as missing:
        pytest.skip(str(missing))
    ours = [life for ways in night.lives.values() for life in ways["ours"]]
    assert len(ours) == 240
    assert all(life.asked for life in ours)
    assert not [life for life in ours if life.before > 0], "died early"
    assert not [life for life in ours if life.past > LATEST], "lived too long"
    assert [life for life in night.lives["back"]["px"] if life.past > LATEST], "else this night proves nothing"
    assert [life for life in night.lives["forward"]["px"] if life.before > 0]
