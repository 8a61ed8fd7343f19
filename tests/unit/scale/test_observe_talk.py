"""Nodes that hang, lie, talk nonsense or do not let us in cost one wait, and tell no secret."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale import access as access_module
from mmcache.scale.access import Access
from mmcache.scale.observe import look, side_by_side
from mmcache.scale.observed import Member
from mmcache.scale.platform import Platform
from mmcache.scale.talk import Wire, talk

SECRET = "so very secret"


@contextmanager
def liar(answer: Callable[[socket.socket], None], most: int = 20) -> Iterator[int]:
    """A port where somebody takes connections and does as he likes with each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            for _ in range(most):
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                held.append(taken)
                threading.Thread(target=run, args=(taken,), daemon=True).start()

        def run(taken: socket.socket) -> None:
            with suppress(OSError):
                answer(taken)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for one in held:
                one.close()
            thread.join()


def saying(words: bytes) -> Callable[[socket.socket], None]:
    def answer(taken: socket.socket) -> None:
        taken.recv(65536)
        taken.sendall(words)
        taken.shutdown(socket.SHUT_WR)

    return answer


def nothing(taken: socket.socket) -> None:
    taken.recv(65536)


def forever(taken: socket.socket) -> None:
    while True:
        taken.sendall(b"x" * 65536)


def promising(taken: socket.socket) -> None:
    taken.sendall(b"$1000000000\r\n")
    forever(taken)


@dataclass
class Listed:
    """A `Platform` of ports."""

    ports: list[int] = field(default_factory=list)

    def members(self) -> list[Member]:
        return [Member(shard, 0, "127.0.0.1" if port else "", port) for shard, port in enumerate(self.ports)]

    def start_shard(self, shard: int, members: int) -> None:
        raise AssertionError

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        raise AssertionError

    def replace(self, member: Member) -> None:
        raise AssertionError


NONSENSE = [
    b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$99999999999999999999\r\n", b"$-5\r\n", b"*3\r\n", b"+OK\r\n" * 3,
    b"$5\r\nab", b":x\r\n", b"*1\r\n" * 50 + b"+x\r\n", b"-ERR unknown command\r\n" * 3, b"*-1\r\n" * 3, b"%2\r\n",
    b"$4\r\nabcd\r\n" * 3,
]  # fmt: skip


def test_nonsense_is_no_answer_and_says_why() -> None:
    platform: Platform
    for said in NONSENSE:
        with liar(saying(said)) as port:
            platform = Listed([port])
            seen = look(platform, Access(timeout_seconds=30.0), 5.0)
            assert not seen.nodes
            assert f"127.0.0.1:{port}" in seen.silent["0-0"]
            assert seen.at == 5.0


def test_nodes_that_hang_are_waited_for_side_by_side() -> None:
    with liar(nothing, 100) as port:
        started = time.monotonic()
        seen = look(Listed([port] * 40 + [0]), Access(timeout_seconds=0.5), 0.0)
        assert time.monotonic() - started < 0.5 * 40  # one after the other it would be that
    assert len(seen.silent) == 41
    assert "not answered in time" in seen.silent["0-0"]
    assert seen.silent["40-0"] == "it has no address yet"


def test_who_never_ends_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_BYTES", 1 << 20)
    with liar(forever) as port:
        seen = look(Listed([port]), Access(timeout_seconds=30.0), 0.0)
    assert "no reply of a server" in seen.silent["0-0"]
    with liar(promising) as port:
        seen = look(Listed([port]), Access(timeout_seconds=30.0), 0.0)
    assert "more than" in seen.silent["0-0"]


def test_no_secret_is_shown() -> None:
    made = Access(SECRET, "operator", ssl.create_default_context(), 30.0)
    assert SECRET not in repr(made)
    told = Access(SECRET, "operator", timeout_seconds=30.0)
    echo = f"-ERR unknown command 'AUTH', with args beginning with: 'operator' '{SECRET}'\r\n".encode()
    with liar(saying(echo)) as port, pytest.raises(ScaleError, match="does not let us in") as caught:
        told.to("127.0.0.1", port)
    chain, error = "", caught.value
    while error is not None:
        chain += repr(error) + str(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert SECRET not in chain
    assert f"127.0.0.1:{port}" in chain
    assert told.migrating() == ("AUTH2", "operator", SECRET)
    assert Access(SECRET).migrating() == ("AUTH", SECRET)
    assert Access().migrating() == ()


def test_what_a_node_repeats_is_shown_without_the_secret_and_without_orders_to_a_terminal() -> None:
    bulk = b"$%d\r\n%b\r\n" % (len(SECRET), SECRET.encode())
    for said in (bulk, f"+{SECRET}\r\n".encode(), f"{SECRET}\r\n".encode(), f"-ERR {SECRET}\x1b[2J\r\n".encode()):

        def answer(taken: socket.socket, said: bytes = said) -> None:
            taken.recv(65536)
            taken.sendall(b"+OK\r\n")
            taken.recv(65536)
            taken.sendall(said * 3)

        with liar(answer) as port:
            seen = look(Listed([port]), Access(SECRET, timeout_seconds=30.0), 0.0)
        assert "***" in seen.silent["0-0"]
        assert SECRET not in seen.silent["0-0"]
        assert seen.silent["0-0"].isprintable()
    with liar(saying(b"-ERR " + b"y" * 50_000 + b"\r\n")) as port, Wire("127.0.0.1", port) as wire:
        (told,) = wire.call([("X",)])
        assert len(str(told)) < 1000


def test_errors_name_the_node_and_the_command_and_no_key() -> None:
    with liar(saying(b"-ERR no such slot\r\n")) as port, Access(timeout_seconds=30.0).to("127.0.0.1", port) as node:
        with pytest.raises(ScaleError, match=rf"^127.0.0.1:{port}: CLUSTER SETSLOT: ERR no such slot$") as caught:
            node.ask("CLUSTER", "SETSLOT", 5, "NODE", "somebody")
        assert isinstance(caught.value.__cause__, TierError)
    words = ("MIGRATE", "host", 1, "", 0, 1, "AUTH", SECRET, "KEYS", b"key")
    with liar(saying(b"-IOERR\r\n")) as port, pytest.raises(ScaleError, match=r"MIGRATE: IOERR$"):
        Access(timeout_seconds=30.0).ask("127.0.0.1", port, *words)


def test_nobody_there_and_no_such_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for host in ("127.0.0.1", "no such host", "x" * 300):
        with pytest.raises(ScaleError):
            Access(timeout_seconds=30.0).ask(host, port, "PING")


def test_replies_are_read_in_order_however_they_come() -> None:
    said = b"+OK\r\n:-12\r\n$-1\r\n$3\r\na\r\n\r\n*2\r\n$1\r\nb\r\n*-1\r\n-ERR no\r\n"

    def slowly(taken: socket.socket) -> None:
        taken.recv(65536)
        for byte in said:
            taken.sendall(bytes([byte]))

    for answer in (saying(said), slowly):
        with liar(answer) as port, Wire("127.0.0.1", port) as wire:
            *plain, error = wire.call([("X",)] * 6)
            assert plain == ["OK", -12, None, b"a\r\n", [b"b", None]]
            assert str(error) == "ERR no"
    with liar(saying(b"+PONG\r\n")) as port:
        assert talk(port, ("PING",)) == ["PONG"]


def test_what_is_done_side_by_side_fails_for_itself_alone() -> None:
    def halved(number: int) -> int:
        if number % 2:
            raise ScaleError(f"{number} is odd")
        return number // 2

    answers = side_by_side(halved, range(200), 30.0, threads=7)
    assert answers[::2] == list(range(100))
    assert all(isinstance(answer, ScaleError) for answer in answers[1::2])
    assert side_by_side(halved, [], 1.0) == []

    def broken(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError):
        side_by_side(broken, [1], 30.0)
