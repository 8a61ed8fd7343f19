"""An upstream that does what it is told, for tests of the chat routes: no network, no clock, no sleeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmcache import Cache
from mmcache.model.errors import UpstreamError
from mmcache.server.config import RouteRules, ServerSettings
from mmcache.server.exchange import Answered, Asked, Directives, Headers, Proxy
from mmcache.testing import FakeClock

SAID, RULES = "A cat.", RouteRules()
CHAT: dict[str, Any] = {
    "model": "llava",
    "temperature": 0,
    "messages": [{"role": "user", "content": "What animal is it?"}],
}


def completion(text: str = SAID, ended: str = "stop", **changes: Any) -> dict[str, Any]:
    """A whole answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": ended}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 17, "model": "llava"}
    return head | {"choices": [choice], "usage": usage} | changes


def chunk(delta: dict[str, Any] | None, ended: str | None = None, **changes: Any) -> bytes:
    """One event of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": ended}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 17, "model": "llava"}
    return b"data: " + json.dumps(head | {"choices": choices} | changes).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def stream(*words: str, ended: str = "stop") -> list[bytes]:
    """All events of a stream."""
    told = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": word}) for word in words)]
    return [*told, chunk({}, ended), DONE]


@dataclass
class Scripted:
    """One reply. Pieces that are events are waited for, an error is raised."""

    pieces: list[Any]
    status: int = 200
    headers: Headers = field(default_factory=lambda: [(b"content-type", b"application/json")])
    given: int = 0
    closed: bool = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, UpstreamError):
                raise piece
            else:
                await asyncio.sleep(0)
                self.given += 1
                yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def close(self) -> None:
        self.closed = True


def whole(answer: Any, *waits: asyncio.Event, status: int = 200, **headers: str) -> Scripted:
    """A JSON answer."""
    more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    given = json.dumps(answer).encode()
    return Scripted([*waits, given], status, [(b"content-type", b"application/json"), *more])


def events(pieces: Sequence[object]) -> Scripted:
    """A stream."""
    return Scripted([*pieces], 200, [(b"content-type", b"text/event-stream"), (b"x-request-id", b"r1")])


class FakeUpstream:
    """Gives what `reply()` makes for each request."""

    def __init__(self, reply: Callable[[], Scripted]) -> None:
        self.reply = reply
        self.replies: list[Scripted] = []
        self.bodies: list[bytes] = []

    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Scripted:
        self.bodies.append(body)
        self.replies.append(self.reply())
        return self.replies[-1]

    async def close(self) -> None:
        pass

    @property
    def calls(self) -> int:
        return len(self.bodies)


class World:
    """A cache in memory, an upstream, and one route between them."""

    def __init__(self, route: Any, path: str, reply: Callable[[], Scripted], **options: Any) -> None:
        self.clock = FakeClock()
        self.cache = Cache(memory="32MiB", clock=self.clock, **options)
        self.upstream = FakeUpstream(reply)
        self.compared: list[bool] = []
        self.settings = ServerSettings("http://upstream")
        self.route, self.path = route, path
        self.proxy = Proxy(self.cache, self.upstream, self.settings, lambda _, same: self.compared.append(same))

    def asked(self, request: Any, *, tenant: str = "t", rules: RouteRules = RULES, **directives: Any) -> Asked:
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer secret")]
        return Asked("POST", self.path, b"", headers, body, tenant, Directives(**directives), rules)

    async def ask(self, request: Any, **options: Any) -> Answered:
        answered: Answered = await self.route(self.asked(request, **options), self.proxy)
        return answered

    async def read(self, request: Any, **options: Any) -> tuple[str, bytes]:
        """Verdict and whole body."""
        answered = await self.ask(request, **options)
        told = await body_of(answered)
        await self.idle()
        return f"{answered.verdict.outcome} {answered.verdict.reason}".strip(), told

    async def idle(self) -> None:
        """Wait until what was asked for is stored, and learned from."""
        if (calls := self.proxy.kept.get("mmcache.server.calls")) is not None:
            await calls.idle()


async def body_of(answered: Answered) -> bytes:
    """All of it."""
    if isinstance(answered.body, bytes):
        return answered.body
    return b"".join([piece async for piece in answered.body])


async def settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)
