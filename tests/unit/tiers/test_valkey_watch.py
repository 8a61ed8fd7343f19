"""How a machine follows the server's clock: round trips, contention, and its own sleep. No server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.clocks import Ledger
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.scripts import LOOK, SWAP
from mmcache.tiers.valkey.watch import LOOK_SECONDS, OVERDUE_SECONDS, TRUSTED_SECONDS, ClockWatch, asleep, this_machine
from mmcache.tiers.valkey.words import Request

BLOCK = Request(b"block", ("GETRANGE", b"block", 0, 9))


class OneKeyServer:
    """Answers what a watch asks; `delay` passes on the way, and `values` until all of a batch is here."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.value, self.skew, self.delay, self.values = clock, b"", 0.0, 0.0, 0.0
        self.asked: list[str] = []
        self.contended = self.silent = False
        self.slept = 0.0
        self.told: Any = None

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        replies = [self.one(request) for request in requests]
        if len(requests) > 1:
            self.clock.advance(self.values)
        return replies

    def one(self, request: Request) -> Any:
        if request is BLOCK:
            self.asked.append("block")
            return b"value"
        if self.silent:
            return Down("it is gone")
        digest, arguments = request.words[1], request.words[4:]
        if digest == LOOK.words(())[1]:
            self.asked.append("look")
            if self.told is not None:
                return self.told
            self.clock.advance(self.delay)
            now = self.clock.monotonic() + self.slept + self.skew
            last = arguments[0]
            assert isinstance(last, int)
            return [self.value[: last + 1], [b"%d" % int(now), b"%d" % round(now % 1 * 1e6)]]
        assert digest == SWAP.words(())[1]
        self.asked.append("swap")
        old, new = arguments
        assert isinstance(new, bytes)
        if self.contended or self.value[:8] != old:
            return 0
        self.value = new
        return 1


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> OneKeyServer:
    return OneKeyServer(clock)


def watch(server: OneKeyServer, name: bytes, slept: float | None = None) -> ClockWatch:
    return ClockWatch(server.ask, b"clock", server.clock, name, lambda: server.slept if slept is None else slept)


def use(one: ClockWatch, server: OneKeyServer) -> None:
    assert one.ask([BLOCK]) == [b"value"]


def test_most_calls_are_one_command(server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    use(one, server)
    server.asked.clear()
    for _ in range(10):
        use(one, server)
    assert server.asked == ["block"] * 10
    server.asked.clear()
    server.clock.advance(LOOK_SECONDS)
    use(one, server)
    use(one, server)
    assert server.asked == ["look", "block", "block"], "a look costs no round trip of its own"


def test_a_look_waits_a_while_for_a_call_that_goes_to_its_node_anyway(server: OneKeyServer) -> None:
    near = [False]
    one = ClockWatch(server.ask, b"clock", server.clock, b"machine1", lambda: 0.0, near=lambda name: near[0])
    use(one, server)
    server.asked.clear()
    server.clock.advance(LOOK_SECONDS)
    use(one, server)
    assert server.asked == ["block"]
    near[0] = True
    use(one, server)
    assert server.asked == ["block", "look", "block"]
    near[0] = False
    server.asked.clear()
    server.clock.advance(OVERDUE_SECONDS)
    use(one, server)
    assert server.asked == ["look", "block"]


def test_large_values_do_not_blur_the_clock_but_a_far_server_is_not_asked_twice(server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    use(one, server)
    server.clock.advance(LOOK_SECONDS)
    server.asked.clear()
    server.values = 0.4
    use(one, server)
    assert server.asked == ["look", "block", "look"]
    server.values = 0.0
    far = watch(server, b"machine2")
    server.delay = 0.04
    use(far, server)
    server.clock.advance(LOOK_SECONDS)
    server.asked.clear()
    use(far, server)
    assert server.asked == ["look", "block"]


def test_who_cannot_write_the_ledger_reads_its_own_blocks_only(server: OneKeyServer) -> None:
    one, two = watch(server, b"machine1"), watch(server, b"machine2")
    one.look()
    server.contended = True
    two.look()
    assert two.local(b"machine2", 5.0) == 5.0
    assert two.local(b"machine1", 5.0) is None
    server.contended = False
    for machine in (two, one, two):
        machine.look()
    assert two.local(b"machine1", 5.0) == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize("told", [
    Refusal("NOPERM no script for you"), Down("gone"), 5, b"x", [5, [b"1", b"2"]], [b"", [b"1"]], [b"", 7], None, [],
    [b"", [b"9" * 400, b"0"]], [b"", [b"x", b"0"]],
])  # fmt: skip
def test_a_server_that_tells_no_time_is_no_error(server: OneKeyServer, told: Any) -> None:
    one = watch(server, b"machine1")
    server.told = told if told is not None else "none"
    one.look()
    use(one, server)
    assert one.local(b"another1", 5.0) is None
    assert one.local(b"machine1", 5.0) == 5.0


def test_somebody_new_is_looked_up_at_once_but_not_again_and_again(server: OneKeyServer) -> None:
    one, two = watch(server, b"machine1"), watch(server, b"machine2")
    one.look()
    two.look()
    server.clock.advance(0.05)
    assert one.local(b"machine2", 5.0) is None
    assert one.look_again()
    assert one.local(b"machine2", 5.0) is not None
    assert not one.look_again()


def test_a_minute_without_the_clock_and_nothing_of_others_is_translated(server: OneKeyServer) -> None:
    one, two = watch(server, b"machine1"), watch(server, b"machine2")
    for machine in (one, two, one):
        machine.look()
    server.silent = True
    server.clock.advance(TRUSTED_SECONDS / 2)
    use(one, server)
    assert one.local(b"machine2", 5.0) is not None
    server.clock.advance(TRUSTED_SECONDS / 2)
    use(one, server)
    assert one.local(b"machine2", 5.0) is None
    assert one.local(b"machine1", 5.0) == 5.0
    server.silent = False
    one.look()
    assert one.local(b"machine2", 5.0) is not None


def test_a_suspended_machine_knows_how_long_it_slept(server: OneKeyServer) -> None:
    laptop, other = watch(server, b"laptop01"), watch(server, b"machine2", slept=0.0)
    for machine in (laptop, other, laptop, other):
        machine.look()
    until = laptop.until(server.clock.monotonic() + 100)
    assert until is not None
    server.slept = 60.0  # its monotonic clock stood still meanwhile
    laptop.look()
    assert laptop.local(b"laptop01", until) == pytest.approx(server.clock.monotonic() + 40)
    assert Ledger.decode(server.value[8:]).turn < 6, "that was no step of the server's"


def test_this_machine_is_the_same_for_all_its_processes() -> None:
    assert len(this_machine()) == 8
    assert this_machine() == this_machine()
    assert asleep() == asleep() >= 0


def test_a_server_that_did_not_tell_in_time_is_not_asked_again_at_once(clock: FakeClock, server: OneKeyServer) -> None:
    one = watch(server, b"machine1")
    one.look()
    asked = 0

    def late(requests: Sequence[Request]) -> list[Any]:
        nonlocal asked
        asked += 1
        clock.advance(0.5)
        return [Down("all connections were busy")] * len(requests)

    one._ask = late
    clock.advance(OVERDUE_SECONDS)
    one.ask([BLOCK])
    assert asked == 1
