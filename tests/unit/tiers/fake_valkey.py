"""Servers on loopback that answer what a test tells them to: what real ones say seldom, or never."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Words = list[bytes]
Answer = Callable[[Words], Any]
"""What to reply to a command; `Raw` bytes go out as they are, None after them closes the connection."""


class Raw(bytes):
    """Bytes instead of a reply."""


class Hangup(bytes):
    """Bytes instead of a reply, after which the connection is closed."""


class Error(str):
    """An error reply."""


def encoded(reply: Any) -> bytes:
    """RESP2 of a reply."""
    if isinstance(reply, Raw | Hangup):
        return bytes(reply)
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, Error):
        return b"-%b\r\n" % reply.encode()
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))
    return b"$%d\r\n%b\r\n" % (len(reply), reply)


@contextmanager
def fakes(*answers: Answer) -> Iterator[list[int]]:
    """One server for each of `answers`; their ports."""
    servers = [_Server(("127.0.0.1", 0), _handler(answer)) for answer in answers]
    threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.01}) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield [each.server_address[1] for each in servers]
    finally:
        for each, thread in zip(servers, threads, strict=True):
            each.shutdown()
            thread.join()
            each.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


def _handler(answer: Answer) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                while head := self.rfile.readline():
                    words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                    reply = answer(words)
                    for piece in reply if isinstance(reply, Iterator) else [encoded(reply)]:
                        self.wfile.write(piece)
                    if isinstance(reply, Hangup):
                        return
            except (OSError, ValueError):
                return

    return Handler


def slots_of(ports: Sequence[int], replicas: Sequence[int] = ()) -> list[Any]:
    """What CLUSTER SLOTS says of nodes that share the slots evenly, in order; each has the same replicas."""
    count = len(ports)
    others = [[b"127.0.0.1", port, b"replica%d" % port, []] for port in replicas]
    return [
        [16384 * n // count, 16384 * (n + 1) // count - 1, [b"127.0.0.1", port, b"node%d" % port, []], *others]
        for n, port in enumerate(ports)
    ]
