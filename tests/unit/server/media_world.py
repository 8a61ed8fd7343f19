"""What the tests of media share: pictures, requests, an upstream that keeps media like vLLM, and an origin."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer
from PIL import Image

from mmcache import Cache
from mmcache.model.errors import UpstreamError
from mmcache.server.config import FetchRules, RouteRules, ServerSettings
from mmcache.server.exchange import Asked, Directives, Headers, Proxy
from mmcache.server.upstream import Reply

CHAT = "/v1/chat/completions"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pixels(seed: int = 0, width: int = 31, height: int = 17, channels: int = 3) -> Image.Image:
    """A picture of noise."""
    shape = (height, width, channels) if channels > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """`picture` as a file."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def asked(body: bytes = b"{}", *, tenant: str = "ann", headers: Headers | None = None, **changes: Any) -> Asked:
    """A request; `changes` are fields of `Asked`, of its rules, or of its directives."""
    rules = {name: changes.pop(name) for name in list(changes) if name in RouteRules.__dataclass_fields__}
    wants = {name: changes.pop(name) for name in list(changes) if name in Directives.__dataclass_fields__}
    headers = headers or [(b"content-type", b"application/json"), (b"authorization", b"Bearer sk-1")]
    path = changes.pop("path", CHAT)
    return Asked("POST", path, b"", headers, body, tenant, Directives(**wants), RouteRules(**rules), **changes)


@dataclass
class Answer:
    """A reply of the fake upstream."""

    status: int
    headers: Headers
    pieces: list[bytes]
    broken: bool = False
    closed: int = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.broken:
            raise UpstreamError("the upstream broke off")

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def close(self) -> None:
        self.closed += 1


def answer(found: Any, status: int = 200) -> Answer:
    """As JSON."""
    return Answer(status, [(b"content-type", b"application/json")], [json.dumps(found).encode()])


@dataclass
class FakeUpstream:
    """Answers with what `reply` makes of a request's body; keeps all that it was sent."""

    reply: Callable[[bytes], Reply]
    bodies: list[bytes] = field(default_factory=list)

    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Reply:
        self.bodies.append(body)
        return self.reply(body)

    async def close(self) -> None:
        pass


def refuse(body: bytes) -> Reply:
    """For tests in which nobody asks upstream."""
    raise AssertionError("the upstream was asked")


def proxy(
    cache: Cache, reply: Callable[[bytes], Reply] = refuse, fetch: FetchRules | None = None, **settings: Any
) -> Proxy:
    """A proxy around it all."""
    made = ServerSettings("http://upstream", **settings)
    return Proxy(cache, FakeUpstream(reply), made if fetch is None else replace(made, fetch=fetch))


async def closed(one: Proxy) -> None:
    """Close what it opened."""
    for close in reversed(one.closers):
        await close()


@dataclass
class Origin:
    """A real server on loopback, and what it was asked."""

    server: TestServer
    seen: list[web.Request]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server.port}{path}"

    async def close(self) -> None:
        await self.server.close()


async def origin(handler: Handler) -> Origin:
    """Start one that answers everything with `handler`."""
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    return Origin(server, seen)
