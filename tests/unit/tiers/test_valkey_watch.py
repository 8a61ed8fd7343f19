"""How a machine follows the server's clock: round trips, contention, and its own sleep. No server."""

from __future__ import annotations

from typing import Any

import pytest

from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.clocks import Ledger
from mmcache.tiers.valkey.connection import Command, Refusal
from mmcache.tiers.valkey.watch import ClockWatch, asleep, this_machine


class OneKeyServer:
    """Answers what a watch asks; `delay` passes on the way."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.value, self.skew, self.delay = clock, b"", 0.0, 0.0
        self.asked: list[str] = []
        self.contended = False
        self.slept = 0.0

    def ask(self, commands: list[Command]) -> list[Any]:
        return [self.one(*command) for command in commands]

    def one(self, name: Any, *words: Any) -> Any:
        self.asked.append(name)
        if name == "GETRANGE":
            return self.value[words[1] : words[2] + 1]
        if name == "TIME":
            self.clock.advance(self.delay)
            now = self.clock.monotonic() + self.slept + self.skew
            return int(now), round(now % 1 * 1e6)
        assert name == "EVAL"
        if self.contended or self.value[:8] != words[3]:
            return 0
        self.value = words[4]
        return 1


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> OneKeyServer:
    return OneKeyServer(clock)


def watch(server: OneKeyServer, name: bytes, slept: float | None = None) -> ClockWatch:
    return ClockWatch(server.ask, b"clock", server.clock, name, lambda: server.slept if slept is None else slept)


def look(one: ClockWatch, server: OneKeyServer, values: float = 0.0) -> None:
    sent = one.own()
    replies = server.ask(one.commands())
    server.clock.advance(values)
    one.note(replies, sent, one.own())


def test_a_look_at_a_quiet_clock_costs_no_round_trip_of_its_own(server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    look(one, server)
    before = len(server.asked)
    for _ in range(10):
        look(one, server)
    assert len(server.asked) - before == 20


def test_large_values_do_not_blur_the_clock_but_a_far_server_is_not_asked_twice(server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    look(one, server)
    server.asked.clear()
    look(one, server, values=0.4)
    assert server.asked == ["GETRANGE", "TIME"] * 2
    far = watch(server, b"machine2")
    server.delay = 0.04
    look(far, server)
    server.asked.clear()
    look(far, server)
    assert server.asked == ["GETRANGE", "TIME"]


def test_who_cannot_write_the_ledger_reads_its_own_blocks_only(server: OneKeyServer) -> None:
    one, two = watch(server, b"machine1"), watch(server, b"machine2")
    look(one, server)
    server.contended = True
    look(two, server)
    assert two.local(b"machine2", 5.0) == 5.0
    assert two.local(b"machine1", 5.0) is None
    server.contended = False
    for machine in (two, one, two):
        look(machine, server)
    assert two.local(b"machine1", 5.0) == pytest.approx(5.0, abs=0.2)


def test_a_server_that_tells_no_time_is_no_error(server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    server.one = lambda *command: Refusal("NOPERM no TIME for you")  # type: ignore[method-assign]
    look(one, server)
    assert one.local(b"another1", 5.0) is None
    assert one.local(b"machine1", 5.0) == 5.0


def test_a_suspended_machine_knows_how_long_it_slept(server: OneKeyServer) -> None:
    laptop, other = watch(server, b"laptop01"), watch(server, b"machine2", slept=0.0)
    for machine in (laptop, other, laptop, other):
        look(machine, server)
    until = laptop.until(server.clock.monotonic() + 100)
    assert until is not None
    server.slept = 60.0  # its monotonic clock stood still meanwhile
    look(laptop, server)
    assert laptop.local(b"laptop01", until) == pytest.approx(server.clock.monotonic() + 40)
    assert Ledger.decode(server.value[8:]).turn < 6, "that was no step of the server's"


def test_this_machine_is_the_same_for_all_its_processes() -> None:
    assert len(this_machine()) == 8
    assert this_machine() == this_machine()
    assert asleep() == asleep() >= 0
