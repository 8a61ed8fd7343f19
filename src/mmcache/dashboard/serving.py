"""The process: its ports, its signals and its end. Uvicorn with h11, whose heads are bounded."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mmcache.dashboard.app import Dashboard
from mmcache.model.errors import SettingsError

DRAIN_SECONDS = 5
CONNECTIONS = 512
HEAD_BYTES = 32 << 10
HEAD_SECONDS = 10.0
"""A request whose head takes longer to come is given up: whoever sends it byte by byte would keep others out."""
UNREAD_SECONDS = 60
"""A connection, of whose answers nothing has been taken for so long, ends."""


class _Server(uvicorn.Server):  # type: ignore[misc]  # untyped
    """Signals are ours: it ends with 0 when it is told to."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to `run`."""
        yield


class Protocol(H11Protocol):  # type: ignore[misc]  # untyped
    """Uvicorn bounds a head's bytes and the pause between requests, and not how long a head takes."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A head is to come."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """It came, or a part of it: more parts do not give it more time."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """None will come."""
        self._wait(over=True)
        super().connection_lost(exc)

    def _wait(self, over: bool = False) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if over or answering:
            if self._head is not None:
                self._head.cancel()
            self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        self._head = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 = any that is free. Raises `SettingsError`.

    Its protocol is named: asyncio sets TCP_NODELAY for no other, and then a second answer waits 40 ms for the first's
    acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listening.bind((host, port))
        listening.listen(256)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        raise SettingsError(f"cannot listen at {host}:{port}: {error}; choose another port") from error


def loopback(listening: socket.socket) -> bool:
    """Whether only this machine reaches it."""
    host = str(listening.getsockname()[0])
    return host.startswith("127.") or host == "::1"


def run(doors: Sequence[tuple[Dashboard, socket.socket]]) -> None:
    """Serve until SIGTERM or SIGINT; what is under way is finished first, for at most five seconds."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    servers = [
        _Server(
            uvicorn.Config(
                door, lifespan="off", log_config=None, access_log=False, http=Protocol, ws="none", proxy_headers=False,
                server_header=False, limit_concurrency=CONNECTIONS, h11_max_incomplete_event_size=HEAD_BYTES,
                timeout_graceful_shutdown=DRAIN_SECONDS, timeout_keep_alive=75,
            )
        )
        for door, _ in doors
    ]  # fmt: skip

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            for server, (door, _) in zip(servers, doors, strict=True):
                server.force_exit = server.should_exit  # the second time, at once
                server.should_exit = True
                door.drain()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        await asyncio.gather(
            *(server.serve(sockets=[place]) for server, (_, place) in zip(servers, doors, strict=True))
        )

    asyncio.run(main())
