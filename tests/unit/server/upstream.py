"""A small real server that stands in for the one behind the proxy: over TCP, with keys that may be revoked, and a
record of what it was asked."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

from mmcache.server.asgi import Scope, Send
from mmcache.server.watch import Receive


class Upstream:
    """Serves `/v1/models` to known keys, and whatever else `on` says; counts and keeps what came."""

    def __init__(self) -> None:
        self.models = ["small", "large"]
        self.refused: set[bytes] = set()
        """Values of `authorization` that are answered with 401."""
        self.asked: list[Asked] = []
        self.handlers: dict[str, Handler] = {}
        self.down = False
        """Every answer is 503."""

    def count(self, path: str) -> int:
        """Requests for `path` so far."""
        return sum(asked.path == path for asked in self.asked)

    def on(self, path: str, handler: Handler) -> None:
        """`handler(asked, send)` answers `path`."""
        self.handlers[path] = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        path = scope["raw_path"].decode("latin-1")
        asked = Asked(scope["method"], path, scope["query_string"], list(scope["headers"]), receive)
        self.asked.append(asked)
        handler = self.handlers.get(path)
        if handler is not None and getattr(handler, "streams", False):
            return await handler(asked, send)
        await asked.read()
        if self.down:
            await reply(send, 503, {"error": "down"})
        elif asked.header(b"authorization") in self.refused:
            await reply(send, 401, {"error": {"message": "revoked", "code": "invalid_api_key"}})
        elif handler is not None:
            await handler(asked, send)
        elif path == "/v1/models":
            await reply(send, 200, {"object": "list", "data": [{"id": name} for name in self.models]})
        else:
            await reply(send, 200, asked.shown())


class Asked:
    """A request as it reached the upstream."""

    def __init__(
        self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], receive: Receive
    ) -> None:
        self.method, self.path, self.query, self.headers = method, path, query, headers
        self.receive = receive
        self.body = b""
        self.gone = False
        """The proxy has hung up before it had the answer."""

    async def read(self) -> bytes:
        """The body."""
        more = True
        while more:
            message = await self.receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        return self.body

    def header(self, name: bytes) -> bytes | None:
        """Its value; None where it did not come."""
        return next((value for found, value in self.headers if found == name), None)

    def shown(self) -> dict[str, Any]:
        """For an answer that says what was asked."""
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in self.headers]
        return {
            "method": self.method, "path": self.path, "query": self.query.decode("latin-1"), "headers": headers,
            "body": self.body.decode("latin-1"),
        }  # fmt: skip


Handler = Callable[[Asked, Send], Awaitable[None]]


async def reply(send: Send, status: int, found: Any, *headers: tuple[bytes, bytes]) -> None:
    """Send `found`: bytes, or as JSON."""
    body = found if isinstance(found, bytes) else json.dumps(found).encode()
    shown = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": shown})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(app: Any, protocol: type[asyncio.Protocol] | None = None) -> Iterator[str]:
    """Serve an ASGI application on loopback, in a loop that all tests share; gives its address."""
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, http=protocol or "httptools", ws="none",
        proxy_headers=False, server_header=False, date_header=False,
    )  # fmt: skip
    config.load()
    state = ServerState()

    async def begin() -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: config.http_protocol_class(config, state, {}), "127.0.0.1", 0, backlog=2048
        )

    async def end(server: asyncio.Server) -> None:
        server.close()
        tasks = list(state.tasks)
        for connection in list(state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = run(begin)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        run(end, server)


def run(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    """Await `function(*arguments)` in the loop of the servers."""
    return asyncio.run_coroutine_threadsafe(function(*arguments), _loop()).result(30)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="servers").start()
    return loop
