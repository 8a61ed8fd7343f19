"""`Client` against servers that mean harm, or are broken in ways that look like it: bounded time, bounded memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.tiers.fake_valkey import Answer, Error, Raw, Words, fakes, slots_of

from mmcache.model.clock import SystemClock
from mmcache.model.errors import TierError
from mmcache.settings import SharedSettings
from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import Client, Down, Request, Script
from mmcache.tiers.valkey.realm import same_secret
from mmcache.tiers.valkey.replies import Replies
from mmcache.tiers.valkey.slots import slot_of
from mmcache.tiers.valkey.stream import SecureStream

LARGE = b"x" * (1 << 20)


@contextmanager
def client(
    ports: list[int], *, login: str = "", cluster: bool = False, real: bool = False, **more: Any
) -> Iterator[Client]:
    """Its time is virtual and passes only while it sleeps, unless `real`."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    settings = SharedSettings(f"valkey://{login}{hosts}{'?cluster=true' if cluster else ''}", **more)
    clock = FakeClock()
    asker = Client(settings, clock=SystemClock() if real else clock, sleep=clock.advance)
    try:
        yield asker
    finally:
        asker.close()


def get(key: bytes) -> Request:
    return Request(key, ("GET", key))


def at_most(count: int, answer: Answer) -> Answer:
    """Asked more often than that, it gives in: so a test that fails also ends."""
    asked = iter(range(count))
    return lambda words: "gave in" if words[0] != b"CLUSTER" and next(asked, None) is None else answer(words)


@pytest.mark.parametrize("said", ["LOADING the data", "TRYAGAIN x", "CLUSTERDOWN The cluster is down"])
def test_a_large_value_that_is_refused_again_and_again_gains_no_time_by_being_sent(said: str) -> None:
    with fakes(at_most(200, lambda words: Error(said))) as ports, client(ports) as asker:
        (reply,) = asker.ask([Request(b"a", ("SET", b"a", LARGE))])
        assert isinstance(reply, Down)
        assert said in reply


def test_two_nodes_that_send_a_large_value_to_each_other_end() -> None:
    ports: list[int] = []

    def moved(words: Words, to: int) -> Any:
        return slots_of(ports) if words[0] == b"CLUSTER" else Error(f"MOVED {slot_of(b'a')} 127.0.0.1:{ports[to]}")

    with fakes(at_most(100, lambda words: moved(words, 1)), at_most(100, lambda words: moved(words, 0))) as found:
        ports[:] = found
        with client(found, cluster=True) as asker:
            (reply,) = asker.ask([Request(b"a", ("SET", b"a", LARGE))])
            assert isinstance(reply, Down)
            assert "MOVED" in reply


@pytest.mark.parametrize("place", ["x" * 70 + ":6379", ".x:6379", "a\0b:6379", "127.0.0.1:-5", "127.0.0.1:" + "9" * 30])
def test_a_redirection_to_what_can_be_no_server_raises_nothing(place: str) -> None:
    ports: list[int] = []

    def answer(words: Words) -> Any:
        return slots_of(ports) if words[0] == b"CLUSTER" else Error(f"MOVED {slot_of(b'a')} {place}")

    with fakes(answer) as found:
        ports[:] = found
        with client(found, cluster=True) as asker:
            assert isinstance(asker.ask([get(b"a")])[0], Down)


@pytest.mark.parametrize("host", [10**12, -1, [b"127.0.0.1"], Raw(b"$20000\r\n" + b"x" * 20000 + b"\r\n")])
def test_a_host_that_is_no_name_is_nonsense_not_a_size(host: Any) -> None:
    with fakes(lambda words: [[0, 16383, [host, 6379, b"id"]]]) as ports, client(ports, cluster=True) as asker:
        assert "CLUSTER SLOTS" in asker.ask([get(b"a")])[0]


@pytest.mark.parametrize("item", [b":1\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"*0\r\n", b"+" + b"x" * 60_000 + b"\r\n"])
def test_a_list_costs_what_its_items_cost_however_short_they_are(item: bytes) -> None:
    replies = Replies(1 << 20)
    replies.expect(1)
    some = item * max(1, 200_000 // len(item))

    def flood() -> None:
        replies.feed(b"*1000000\r\n" * 2)
        for _ in range(400):
            replies.feed(some)

    with pytest.raises(TierError, match="one reply of it has more than"):
        flood()


def test_a_server_that_repeats_a_login_in_its_refusal_tells_nobody_the_password() -> None:
    def echo(words: Words) -> Any:
        name, last = words[0].decode(), words[-1].decode()
        return Error(f"ERR unknown command '{name}' {last}, with args beginning with: '{last[:3]}'")

    with fakes(echo) as ports, client(ports, login="me:geheim@") as asker:
        (reply,) = asker.ask([get(b"a")])
        assert isinstance(reply, Down)
        assert "unknown command 'AUTH'" in reply
        assert "geh" not in reply
        assert "geheim" not in asker.status()["resting"]  # type: ignore[operator]


def test_an_address_of_a_host_that_does_not_answer_leaves_time_for_its_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with fakes(lambda words: b"v") as ports, socket.socket() as full:
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        callers = [socket.socket() for _ in range(4)]  # the kernel takes one or two; who comes later waits
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        places = [full.getsockname(), ("127.0.0.1", ports[0])]
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in places]
        )
        with client(ports, real=True, timeout_seconds=1) as asker:
            assert asker.ask([get(b"a")]) == [b"v"]
        for caller in callers:
            caller.close()


@pytest.mark.parametrize("cluster", [False, True])
def test_a_resolver_that_hangs_holds_one_caller_for_one_timeout(monkeypatch: pytest.MonkeyPatch, cluster: bool) -> None:
    over, real = threading.Event(), socket.getaddrinfo

    def hangs(host: str, port: int, type: int, flags: int = 0) -> Any:
        if not flags:
            over.wait(30)
        return real(host, port, type=type, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    settings = SharedSettings(f"valkey://nowhere.invalid{'?cluster=true' if cluster else ''}", timeout_seconds=0.1)
    asker = Client(settings, clock=SystemClock())
    assert "in time" in asker.ask([get(b"a")])[0]
    looked = asker.status()["looks"]
    assert isinstance(asker.ask([get(b"a")])[0], Down)
    assert asker.status()["looks"] == looked
    assert not over.is_set()
    over.set()
    asker.close()


def test_a_node_that_hangs_keeps_no_other_from_running_a_script_that_is_new_to_it() -> None:
    script, known, over = Script("return KEYS[1]"), list[bytes](), threading.Event()
    ports: list[int] = []

    def hangs(words: Words) -> Any:
        if words[0] == b"CLUSTER":
            return slots_of(ports)
        over.wait(30)
        return b"late"

    def runs(words: Words) -> Any:
        if words[0] == b"CLUSTER":
            return slots_of(ports)
        if words[0] == b"EVALSHA" and not known:
            return Error("NOSCRIPT No matching script.")
        known.append(words[0])
        return words[3]

    with fakes(hangs, runs) as found:
        ports[:] = found
        keys = [next(b"%d" % n for n in range(99) if slot_of(b"%d" % n) // 8192 == node) for node in range(2)]
        with client(found, cluster=True, real=True, timeout_seconds=2.0) as asker:
            first, second = asker.ask([Request(key, script.words([key])) for key in keys])
            assert isinstance(first, Down)
            assert second == keys[1]
            assert asker.ask([Request(keys[1], script.words([keys[1]]))] * 2) == [keys[1]] * 2
        over.set()
    assert known == [b"EVAL", b"EVALSHA", b"EVALSHA"]


def test_what_is_no_block_may_be_larger_than_blocks_must_be() -> None:
    with fakes(lambda words: b"x" * 65_536) as ports, client(ports, largest_bytes=1000) as asker:
        assert asker.ask([get(b"{clock}")]) == [b"x" * 65_536]


def test_what_came_unasked_inside_tls_is_seen_before_the_next_question() -> None:
    class Decrypted(socket.socket):
        left = 5

        def pending(self) -> int:
            return self.left

    one, other = socket.socketpair()
    with other, Decrypted(fileno=one.detach()) as mine:
        stream = SecureStream(mine)
        assert not stream.quiet()
        mine.left = 0
        assert stream.quiet()


@pytest.mark.parametrize("said", ["CLUSTERDOWN The cluster is down", "MASTERDOWN x", "LOADING x", "READONLY x"])
def test_a_listener_leaves_a_node_that_is_cut_off_for_the_one_that_took_its_place(said: str) -> None:
    ports: list[int] = []

    def cut_off(words: Words) -> Any:
        return slots_of(ports) if words[0] == b"CLUSTER" else Error(said)

    def elected(words: Words) -> Any:
        return slots_of(ports[1:]) if words[0] == b"CLUSTER" else b"news"

    with fakes(cut_off, elected) as found:
        ports[:] = found
        with client(found, cluster=True) as asker:
            replies = []
            for _ in range(6):
                listener = asker.listen(b"b")  # in the first half
                replies.append(listener.ask(("XREAD",), 10))
                listener.close()
                looking = asker._routes.look._running
                if looking is not None:
                    looking.wait(10)
                asker._sleep(0.2)
        assert b"news" in replies


def test_a_server_that_lists_its_keys_in_a_circle_is_not_followed_for_ever() -> None:
    with fakes(at_most(100, lambda words: [b"5", []])) as ports:
        tier = ValkeyTier.open(f"valkey://127.0.0.1:{ports[0]}", clock=FakeClock(), heartbeat=False)
        with pytest.raises(TierError, match="circle"):
            list(tier.scan())
        assert tier.stats().detail["down"] == 1
        tier.close()


@pytest.mark.parametrize("said", [10**12, -1, None, [], [b"x"], b"x" * 20_000])
def test_a_fingerprint_that_is_none_is_nobodys_other_secret(said: Any) -> None:
    with fakes(lambda words: said) as ports, client(ports) as asker:
        assert isinstance(same_secret(asker, "a:", bytes(32)), Down)
