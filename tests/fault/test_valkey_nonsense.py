"""What answers at the server's address, but is no server: a miss, a refused put, a drop that is owed; nothing else."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from mmcache.model.errors import TierError
from mmcache.model.event import MissReason
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.valkey import ValkeyTier

CLOCK = b"*2\r\n$0\r\n\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
NONSENSE = [
    b":5\r\n", b"*1\r\n:1\r\n", b"+OK\r\n", b"$3\r\nabc\r\n", b"*-1\r\n", b"$-1\r\n", b"_\r\n", b"#t\r\n", b"*0\r\n",
    b"garbage\r\n", b"\r\n", b":\xff\r\n", b"$-5\r\n", b"%1\r\n+a\r\n+b\r\n", b"(99999999999999999999\r\n",
    b"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n", b"*2\r\n$3\r\nxyz\r\n*0\r\n", b"*1\r\n" * 3000 + b"*0\r\n",
]  # fmt: skip


SIZES = (9, 20_000, 90_000)
"""A block in one script, one that is staged, one in pieces."""


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """A server on loopback that gives to each command, by its name, what `answer` says; its port.

    `LOOK` is a look at the clock.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                try:
                    look = words[0].startswith(b"EVAL") and words[3].endswith(b"{clock}")
                    self.wfile.write(answer(b"LOOK" if look else words[0].upper()))
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
    return lambda name: clock if name == b"LOOK" else nonsense


@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("sane_clock", [True, False])
def test_nonsense_is_a_miss_or_a_failed_tier(nonsense: bytes, sane_clock: bool) -> None:
    with answering(polite(nonsense, CLOCK if sane_clock else nonsense)) as port:
        for call in (
            lambda tier: [isinstance(found, MissReason) for found in tier.get([make_key(1)])] == [True],
            lambda tier: all(tier.put([make_frame(make_key(1), b"x" * size)], [None])[0] for size in SIZES),
            lambda tier: tier.stats(),
            lambda tier: tier.drop([make_key(1)]) is not None,
            lambda tier: list(tier.scan()) == [] if nonsense[:1] == b"*" else None,
            lambda tier: tier.claims.acquire(make_key(1)),
        ):  # fmt: skip
            tier = ValkeyTier.open(
                f"valkey://127.0.0.1:{port}", timeout_seconds=0.2, chunk_bytes=50_000, heartbeat=False
            )
            with suppress(TierError):
                assert call(tier) is not False
            tier.close()


def test_what_was_left_unread_answers_no_later_question() -> None:
    """A map where a pair is due makes the client trip before it has read the rest."""
    answers = iter([b"%1\r\n+a\r\n+b\r\n", CLOCK])

    def answer(name: bytes) -> bytes:
        return next(answers, CLOCK) if name == b"LOOK" else b"$0\r\n\r\n"

    with answering(answer) as port:
        tier = ValkeyTier.open(f"valkey://127.0.0.1:{port}", timeout_seconds=20.0, rest_seconds=1e-9)
        assert tier.get([make_key(1)]) == [MissReason.TIER_DOWN]
        assert tier.get([make_key(1)]) == [MissReason.ABSENT]
        tier.close()
