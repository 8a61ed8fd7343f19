"""`Client` behind sentinels that are told what to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.unit.tiers.fake_valkey import Error, Words, fakes

from mmcache.settings import SharedSettings
from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.client import Client, Down, Request


class Pair:
    """Two servers, and what two sentinels and they themselves say of who is the master."""

    def __init__(self) -> None:
        self.named = 0
        """Whom the sentinels name."""
        self.masters = {0}
        """Who says so of himself."""
        self.writable = {0}
        self.ports: list[int] = []
        self.sentinels: list[int] = []
        self.mute = False
        """Whether the first sentinel answers nonsense."""

    def server(self, number: int, words: Words) -> Any:
        if words[0] == b"ROLE":
            return [b"master" if number in self.masters else b"slave", 0, []]
        if words[0] == b"SET" and number not in self.writable:
            return Error("READONLY You can't write against a read only replica.")
        return b"%d" % number

    def sentinel(self, number: int, words: Words) -> Any:
        assert words[:2] == [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]
        self.sentinels.append(number)
        if self.mute and number == 0:
            return 5
        return [b"127.0.0.1", b"%d" % self.ports[self.named]] if words[2] == b"main" else None


@contextmanager
def pair(master: str = "main") -> Iterator[tuple[Pair, Client, FakeClock]]:
    made, clock = Pair(), FakeClock()
    with fakes(
        *(lambda words, n=n: made.server(n, words) for n in range(2)),
        *(lambda words, n=n: made.sentinel(n, words) for n in range(2)),
    ) as ports:
        made.ports = ports[:2]
        url = f"valkey+sentinel://127.0.0.1:{ports[2]},127.0.0.1:{ports[3]}/{master}"
        asker = Client(SharedSettings(url), clock=clock, sleep=clock.advance)
        yield made, asker, clock
        asker.close()


PUT, GET = Request(b"k", ("SET", b"k", b"v")), Request(b"k", ("GET", b"k"))


def test_the_master_is_asked_for_once() -> None:
    with pair() as (made, asker, _):
        assert asker.ask([PUT, GET]) == [b"0", b"0"]
        assert asker.ask([GET]) == [b"0"]
        assert made.sentinels == [0]
        assert [node.port for node in asker.primaries()] == [made.ports[0]]


def test_a_master_that_became_a_replica_is_left_within_the_call() -> None:
    with pair() as (made, asker, clock):
        assert asker.ask([GET]) == [b"0"]
        clock.advance(1.0)
        made.named, made.masters, made.writable = 1, {1}, {1}
        assert asker.ask([PUT, PUT, GET]) == [b"1", b"1", b"0"]
        assert asker.ask([GET]) == [b"1"]


def test_who_is_named_but_is_no_master_is_not_asked() -> None:
    with pair() as (made, asker, clock):
        made.masters = set()
        assert "no master" in asker.ask([GET])[0]
        made.masters = {1}
        made.named = 1
        clock.advance(1.0)
        asker.ask([GET])
        clock.advance(1.0)
        assert asker.ask([GET]) == [b"1"]


def test_a_sentinel_that_talks_nonsense_is_passed_over_and_asked_last() -> None:
    with pair() as (made, asker, clock):
        made.mute = True
        assert asker.ask([GET]) == [b"0"]
        assert made.sentinels == [0, 1]
        clock.advance(1.0)
        made.named, made.writable = 1, {1}
        made.masters = {1}
        assert asker.ask([PUT]) == [b"1"]
        assert made.sentinels[2:] == [1]


def test_a_name_that_no_sentinel_knows() -> None:
    with pair("other") as (_, asker, _clock):
        down = asker.ask([GET])[0]
        assert isinstance(down, Down)
        assert "knows no master 'other'" in down
