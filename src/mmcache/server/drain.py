"""The process: its port, its signals, and its end. Uvicorn with httptools, and uvloop where there is one (decision
013).

SIGTERM and Ctrl-C drain: no new connection is taken, what is under way is finished, for at most `drain_seconds`, and
the process ends with 0. SIGHUP reads the configuration anew. What the clients send is bounded here, too: the head of a
request in bytes and in seconds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from mmcache.model.errors import SettingsError
from mmcache.server.asgi import AT_ONCE, Frame, close
from mmcache.server.exchange import Headers

HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0
IDLE_SECONDS = 75
"""How long a client's idle connection is kept: longer than most clients keep theirs, so that they close it first."""
STALLED_SECONDS = 60.0
"""A client that takes nothing for this long, though there is something, holds nothing any more."""
BACKLOG = 2048
_WITH_BODY = frozenset({b"content-length", b"transfer-encoding"})
_SMALL = 32 << 10
"""A body that is cheaper to copy than to write by itself."""


class BoundedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # untyped
    """Heads of requests are bounded: the parser below reads on for ever. One timer a connection looks at it now and
    then, instead of one that is set and taken back for each request."""

    _head = 0
    _since: float | None = None
    """Since when the client is silent between requests, or has not come to the end of a head."""
    _in_head = False
    _piece = 0
    _unread: int | None = None
    """Bytes that the client had not taken at the last look, while it takes too little."""
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A connection that never says anything is closed, too."""
        super().connection_made(transport)
        self._in_head, self._since = True, self.loop.time()
        self._look = self.loop.call_later(HEAD_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of it."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._since = True, self.loop.time()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Nothing of this piece of data so far belongs to the next head."""
        self._head = -self._piece
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """It has ended. What this raises, the parser takes for a malformed request."""
        self._in_head, self._since = False, None
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("HTTP/1.0 and HTTP/1.1 are spoken here")
        if self.parser.should_upgrade() and any(name in _WITH_BODY for name, _ in self.headers):
            raise ValueError("the parser would lose the body: HTTP/1.1 is spoken here, and nothing else")
        super().on_headers_complete()
        if self.parser.should_upgrade():  # it reads nothing more
            self.cycle.keep_alive = False
        # What comes behind a body in chunks must not join those that the application reads.
        self.headers: list[tuple[bytes, bytes]] = []
        if self.scope["method"] != "HEAD":
            self.scope[AT_ONCE] = partial(_at_once, self.cycle)

    def data_received(self, data: bytes) -> None:
        """Counts what is not yet a whole head."""
        self._piece = len(data)
        if not self._in_head:
            self._head = 0
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_response_complete(self) -> None:
        """As below, without the timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._in_head:
            self._since = self.loop.time()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        self._unread = -1
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has taken it."""
        self._unread = None
        super().resume_writing()

    def _check(self) -> None:
        left = min(HEAD_SECONDS, IDLE_SECONDS)
        if self._unread is None and self.transport.is_closing():
            self._unread = -1  # it is closed when the last bytes are taken
        if self._unread is not None:
            unread = self.transport.get_write_buffer_size()
            if unread == self._unread:
                self.transport.abort()  # to close it would wait for ever
                return
            self._unread = unread
            self._look = self.loop.call_later(STALLED_SECONDS, self._check)
            return
        if self._since is not None:
            left = self._since + (HEAD_SECONDS if self._in_head else IDLE_SECONDS) - self.loop.time()
        if left <= 0:
            if self._in_head and self._head:
                self._refuse(b"408 Request Timeout")
            self.transport.close()
            left = STALLED_SECONDS
        self._look = self.loop.call_later(max(left, 0.01), self._check)

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
        self.transport.close()


def _at_once(cycle: RequestResponseCycle, status: int, headers: Headers, body: bytes) -> bool:
    """Send a whole answer: what `cycle.send` does in two steps, with checks of each header that are made here of all
    together. False = not now: the client does not read, or has gone."""
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    lines = [b"%b: %b\r\n" % pair for pair in cycle.default_headers]
    lines += [b"%b: %b\r\n" % pair for pair in headers]
    if not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        raise ValueError("a header of the answer holds a line end")
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    if len(body) < _SMALL:
        cycle.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], head, body))
    else:
        cycle.transport.write(b"%b%b\r\n" % (STATUS_LINE[status], head))
        cycle.transport.write(body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def configured(frame: Any, drain_seconds: float) -> uvicorn.Config:
    """Uvicorn's settings: nothing that believes a client's headers, no log of its own."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        frame, lifespan="on", log_config=None, access_log=False, http=BoundedProtocol, ws="none", loop="auto",
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=max(1, round(drain_seconds)),
        timeout_keep_alive=IDLE_SECONDS, backlog=BACKLOG,
    )  # fmt: skip


class Serving(uvicorn.Server):  # type: ignore[misc]  # untyped
    """Ends with 0 when it is told to: signals are handled by the loop, and not raised again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to `run`."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 = any that is free. Raises `SettingsError`."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise SettingsError(f"cannot listen at {host}:{port}: {error}; choose another --port") from error


def run(
    frame: Frame, listening: socket.socket, *, drain_seconds: float, reload: Callable[[], Any], app: Any = None
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. app: the frame with something in front of it."""
    config = configured(frame if app is None else app, drain_seconds)
    server = Serving(config)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            server.force_exit = server.should_exit  # the second time, at once
            server.should_exit = True
            frame.drain()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGHUP, reload)
        await server.serve(sockets=[listening])
        await close(frame.live.proxy)  # where the end was forced, nobody has

    gc.collect()
    gc.freeze()  # what is here now stays: no collection need look at it again
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(main())
