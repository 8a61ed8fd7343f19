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
BACKLOG = 2048
_SMALL = 32 << 10
"""A body that is cheaper to copy than to write by itself."""


class BoundedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # untyped
    """Heads of requests are bounded: the parser below reads on for ever."""

    _head = 0
    _head_began: float | None = None

    def connection_made(self, transport: Any) -> None:
        """A connection that never says anything is closed like an idle one."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._head, self._head_began = 0, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It has ended. What this raises, the parser takes for a malformed request."""
        self._head_began = None
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("HTTP/1.0 and HTTP/1.1 are spoken here")
        super().on_headers_complete()
        # What comes behind a body in chunks must not join those that the application reads.
        self.headers: list[tuple[bytes, bytes]] = []
        if self.scope["method"] != "HEAD":
            self.scope[AT_ONCE] = partial(_at_once, self.cycle)

    def data_received(self, data: bytes) -> None:
        """Counts what is not yet a whole head."""
        super().data_received(data)
        if self._head_began is None or self.transport.is_closing():
            return
        self._head += len(data)
        left = self._head_began + HEAD_SECONDS - self.loop.time()
        if self._head > HEAD_BYTES or left <= 0:
            status = b"431 Request Header Fields Too Large" if left > 0 else b"408 Request Timeout"
            self.transport.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
            self.transport.close()
        else:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)


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
            frame.drain()
            server.force_exit = server.should_exit  # the second time, at once
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGHUP, reload)
        await server.serve(sockets=[listening])
        await close(frame.live.proxy)  # where the end was forced, nobody has

    gc.collect()
    gc.freeze()  # what is here now stays: no collection need look at it again
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(main())
