"""What answers at the server's address, but is no server: a miss, a refused put, a drop that is owed; nothing else."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from mmcache.model.errors import TierError
from mmcache.model.event import MissReason
from mmcache.testing.frames import make_key
from mmcache.tiers.valkey import ValkeyTier

pytest.importorskip("redis", reason="needs mmcache[valkey]")

HELLO = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n"
CLOCK = b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
NONSENSE = [
    b":5\r\n", b"*1\r\n:1\r\n", b"+OK\r\n", b"$3\r\nabc\r\n", b"*-1\r\n", b"$-1\r\n", b"_\r\n", b"#t\r\n", b"*0\r\n",
    b"garbage\r\n", b"\r\n", b":\xff\r\n", b"$-5\r\n", b"%1\r\n+a\r\n+b\r\n", b"(99999999999999999999\r\n",
    b"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n", b"*2\r\n$3\r\nxyz\r\n*0\r\n", b"*1\r\n" * 3000 + b"*0\r\n",
]  # fmt: skip


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """A server on loopback that gives to each command, by its name, what `answer` says; its port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                try:
                    self.wfile.write(answer(words[0].upper()))
                except OSError:
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def polite(nonsense: bytes, clock: bytes) -> Callable[[bytes], bytes]:
    return lambda name: {b"HELLO": HELLO, b"CLIENT": b"+OK\r\n", b"SELECT": b"+OK\r\n", b"TIME": clock}.get(
        name, nonsense
    )


@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("sane_clock", [True, False])
def test_nonsense_is_a_miss_or_a_failed_tier(nonsense: bytes, sane_clock: bool) -> None:
    with answering(polite(nonsense, CLOCK if sane_clock else nonsense)) as port:
        for call in (
            lambda tier: [isinstance(found, MissReason) for found in tier.get([make_key(1)])] == [True],
            lambda tier: tier.stats(),
            lambda tier: tier.drop([make_key(1)]) is not None,
            lambda tier: list(tier.scan()) == [] if nonsense[:1] == b"*" else None,
        ):
            tier = ValkeyTier(port=port, timeout_seconds=0.2)
            with suppress(TierError):
                assert call(tier) is not False
            tier.close()


def test_a_handshake_that_is_none_is_a_failed_tier() -> None:
    with answering(lambda name: b"+OK\r\n") as port:
        tier = ValkeyTier(port=port, timeout_seconds=0.2)
        assert tier.get([make_key(1)]) == [MissReason.TIER_DOWN]
        tier.close()


def test_what_was_left_unread_answers_no_later_question() -> None:
    """A map where a pair is due makes the client trip before it has read the rest."""
    answers = iter([b"%1\r\n+a\r\n+b\r\n", CLOCK])

    def answer(name: bytes) -> bytes:
        if name == b"TIME":
            return next(answers, CLOCK)
        return {b"HELLO": HELLO, b"CLIENT": b"+OK\r\n"}.get(name, b"$0\r\n\r\n")

    with answering(answer) as port:
        tier = ValkeyTier(port=port, timeout_seconds=0.2)
        assert tier.get([make_key(1)]) == [MissReason.TIER_DOWN]
        assert tier.get([make_key(1)]) == [MissReason.ABSENT]
        tier.close()
