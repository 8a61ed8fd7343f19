"""Asking upstream, for whoever waits: `fetched` a whole answer, `streamed` one in events. Which may be kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmcache.model.key import Key
from mmcache.server.answers_stored import (
    LARGEST_BYTES,
    VERSION,
    Stored,
    forbids,
    kept_headers,
    media_type,
    read_object,
)
from mmcache.server.calls import Call, others_first
from mmcache.server.canonical.request import Bypass, Canonical, Place
from mmcache.server.exchange import Asked, Headers, Proxy
from mmcache.server.media.parts import Identified
from mmcache.server.media.uuids import Sent, send
from mmcache.server.recording import Events, Recorder

EVENT_STREAM = b"text/event-stream"


@dataclass(frozen=True)
class Dialect:
    """What routes that give whole answers differ in."""

    path: str
    canonical: Callable[..., Canonical | Bypass]
    """`canonical(request, sampled=…, tools=…)`."""
    flaw: Callable[[Mapping[str, Any] | None, int, int], str]
    """`flaw(answer, choices, most_tokens)`: why it must not be kept."""
    tokens: Callable[[Mapping[str, Any] | None], int]
    gist: Callable[[Mapping[str, Any] | None], list[Any]]
    recorder: Callable[[int, bool, int], Recorder]
    """`recorder(choices, usage, most_tokens)`."""
    meant: bool = False
    """Whether `semantic.openai.prompt_of` reads its requests."""


@dataclass(frozen=True)
class Wanted:
    """A request that may be cached, and all that is known of it."""

    dialect: Dialect
    asked: Asked
    proxy: Proxy
    request: dict[str, Any] = field(repr=False)
    found: Canonical
    media: Mapping[Place, Identified] = field(repr=False)
    key: Key


@dataclass(frozen=True)
class Told:
    """What became of a call: a whole answer, or the head of a stream."""

    status: int
    headers: Headers
    body: bytes | None = field(repr=False)
    """None: it comes in the call's feed."""
    flaw: str = ""
    """Why it is not kept."""
    stored: Stored | None = field(default=None, repr=False)
    """As it is kept."""
    details: Mapping[str, str] = field(default_factory=dict)
    computed: bool = True
    """By this call; False = it was stored, perhaps by another process meanwhile."""
    compared: bool | None = None
    """Whether it says the same as what was stored, where they were compared."""


class NotKeptError(Exception):
    """Carries an answer that must not be kept past what would keep it."""

    def __init__(self, told: Told) -> None:
        super().__init__(told.flaw)
        self.told = told


async def _sent(wanted: Wanted) -> Sent:
    asked, proxy = wanted.asked, wanted.proxy
    if wanted.media:
        return await send(asked, proxy, wanted.request, wanted.media)
    return Sent(await proxy.upstream.send(asked.method, asked.path, asked.query, asked.headers, asked.body))


def _details(sent: Sent) -> dict[str, str]:
    return {"uuids": str(sent.uuids)} if sent.uuids else {}


async def fetched(wanted: Wanted, call: Call) -> Told:
    """The whole answer. Raises `UpstreamError`."""
    began = time.perf_counter()
    sent = await _sent(wanted)
    reply = sent.reply
    try:
        body = await reply.read()
    finally:
        await reply.close()
    call.over = True
    took = time.perf_counter() - began
    answer = read_object(body) if reply.status == 200 else None
    flaw = _outer_flaw(reply.status, reply.headers, len(body)) or wanted.dialect.flaw(
        answer, wanted.found.choices, wanted.found.most_tokens
    )
    stored = None if flaw else _stored(wanted, took, wanted.dialect.tokens(answer), reply.headers, body)
    return Told(reply.status, reply.headers, body, flaw, stored, _details(sent))


def recorder_of(wanted: Wanted) -> Recorder:
    """What watches its stream."""
    found = wanted.found
    return wanted.dialect.recorder(found.choices, found.usage, found.most_tokens)


def _outer_flaw(status: int, headers: Headers, size: int) -> str:
    """Why an answer must not be kept, whatever it says."""
    if status != 200:
        return "error"
    return "too-large" if size > LARGEST_BYTES else forbids(headers)


def _stored(wanted: Wanted, took: float, tokens: int, headers: Headers, body: bytes) -> Stored:
    return Stored(
        VERSION, wanted.proxy.cache.clock.wall(), took, tokens, kept_headers(headers), body, wanted.key.digest
    )


async def streamed(wanted: Wanted, call: Call, ended: Callable[[Recorder, Stored | None], Awaitable[None]]) -> None:
    """Tell the head, then feed every event to who reads. ended: told of a stream that ended, and what may be kept.

    Raises `UpstreamError`, which all readers hear.
    """
    began = time.perf_counter()
    sent = await _sent(wanted)
    reply = sent.reply
    try:
        if reply.status != 200 or media_type(reply.headers) != EVENT_STREAM:
            body = await reply.read()
            call.over = True
            flaw = "error" if reply.status != 200 else "no-stream"
            call.tell(Told(reply.status, reply.headers, body, flaw))
            return
        flaw = forbids(reply.headers)
        call.tell(Told(reply.status, reply.headers, None, flaw, None, _details(sent)))
        events, recorder = Events(), recorder_of(wanted)
        async for chunk in reply.chunks():
            for event in events.feed(chunk):
                call.feed.push(event.raw)
                if not event.comment:
                    recorder.see(event)
            await call.feed.room()
        if events.rest:  # sent on, for what reads lines may make something of it
            call.feed.push(events.rest)
            flaw = flaw or "unfinished"
    finally:
        await reply.close()
    call.over = True
    took = time.perf_counter() - began
    flaw = flaw or recorder.flaw() or ("" if call.feed.whole else "too-large")
    stored = None if flaw else _stored(wanted, took, recorder.tokens, reply.headers, call.feed.body())
    if stored is None:
        call.forget()
    call.feed.end()
    await others_first()
    await ended(recorder, stored)
