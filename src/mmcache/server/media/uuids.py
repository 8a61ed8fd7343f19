"""Sending requests with media: as their keys say, and to vLLM by `uuid` alone where it has the media already.

vLLM keeps what it made of media under a `uuid` that requests may name, and believes it: a picture under another one's
uuid gets that one's answer. So a caller's uuids are never passed on with media. Ours are digests, keyed with the
tenant's salt, of the exact bytes and of all that vLLM's processing depends on: nobody can guess or choose one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.model.errors import UpstreamError
from mmcache.server.exchange import Asked, Headers, Proxy
from mmcache.server.media.identity import digests
from mmcache.server.media.parts import Identified
from mmcache.server.upstream import Reply

Place = tuple[str | int, ...]
"""Where a part stands in a body: `("messages", 0, "content", 1)`."""

REMEMBERED = 65_536
"""Uuids that the upstream is believed to have."""
_PROCESSING = ("model", "mm_processor_kwargs", "media_io_kwargs")
"""Fields of a request that change what vLLM makes of its media."""
_NAMED = frozenset({"image_url", "audio_url", "input_audio"})
"""Parts that vLLM 0.32 takes a uuid of, also with a body that is null. Not `input_image`, of `/v1/responses`."""
_DOUBTED = frozenset({400, 404, 422, 500})
"""What an upstream may answer because of what we left out. vLLM says 400: "Cache miss for image at index 0 but data is
not provided."; 500 where the entry goes while the request is under way."""
_FORGOTTEN = (b"data is not provided", b"Expected a cached item")
_CREDIT, _PROBE = 4, 64


@dataclass(frozen=True, slots=True)
class Sent:
    """What came back."""

    reply: Reply
    uuids: int = 0
    """Parts that went as a uuid alone (say so in the verdict's details)."""
    resent: bool = False
    """Whether the upstream had forgotten one, and got them all in full."""


class Known:
    """Which uuids the upstream has, as far as its answers tell, and whether it is worth trying. For one proxy."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, None] = OrderedDict()
        self._credit, self._asked = _CREDIT, 0

    def has(self, uuid: bytes) -> bool:
        """Whether to send it alone."""
        return uuid in self._held

    def trying(self) -> bool:
        """Whether to leave bodies out at all: an upstream that keeps nothing refuses each time, and is asked rarely."""
        self._asked += 1
        return self._credit > 0 or self._asked % _PROBE == 0

    def accepted(self, full: set[bytes], alone: set[bytes]) -> None:
        """The upstream has answered a request with these."""
        for uuid in full | alone:
            self._held[uuid] = None
            self._held.move_to_end(uuid)
        while len(self._held) > REMEMBERED:
            self._held.popitem(last=False)
        if alone:
            self._credit = min(_CREDIT, self._credit + 1)

    def refused(self, alone: set[bytes]) -> None:
        """It answered well only when it got these in full."""
        self._credit = max(0, self._credit - 1)
        for uuid in alone:
            self._held.pop(uuid, None)


async def send(asked: Asked, proxy: Proxy, body: Mapping[str, Any], media: Mapping[Place, Identified]) -> Sent:
    """POST `body` upstream, with each of `media` in the form that its identity describes. Raises `UpstreamError`."""
    whole = {place: found.part for place, found in media.items()}
    named = _named(asked, proxy, body, media) if proxy.settings.kind == "vllm" else {}
    if not named:
        return Sent(await _post(asked, proxy, replaced(body, whole)))
    known = known_uuids(proxy)
    tried = {place: uuid for place, uuid in named.items() if known.has(uuid)} if known.trying() else {}
    full = {place: {**part, "uuid": named[place].hex()} if place in named else part for place, part in whole.items()}
    small = {place: alone(whole[place], uuid) for place, uuid in tried.items()}
    reply = await _post(asked, proxy, replaced(body, full | small))
    resent = False
    if tried:
        judged = await _judged(reply)
        if judged is None:
            resent = True
            reply = await _post(asked, proxy, replaced(body, full))
            if reply.status == 200:  # else it was wrong anyway, whatever was left out
                known.refused({*tried.values()})
        else:
            reply = judged
    if reply.status == 200:
        sent_alone = set() if resent else {*tried.values()}
        known.accepted({*named.values()} - sent_alone, sent_alone)
    return Sent(reply, 0 if resent else len(tried), resent)


def alone(part: Mapping[str, Any], uuid: bytes) -> dict[str, Any]:
    """`part` as its uuid only: about 100 bytes, whatever it weighed."""
    return {"type": part["type"], part["type"]: None, "uuid": uuid.hex()}


def replaced(body: Any, parts: Mapping[Place, Mapping[str, Any]]) -> Any:
    """`body` with other parts at those places; nothing that was given is written to."""
    if () in parts:
        return parts[()]
    by_step: dict[str | int, dict[Place, Mapping[str, Any]]] = {}
    for place, part in parts.items():
        by_step.setdefault(place[0], {})[place[1:]] = part
    if not by_step:
        return body
    copy = body.copy()
    for step, below in by_step.items():
        copy[step] = replaced(body[step], below)
    return copy


def known_uuids(proxy: Proxy) -> Known:
    """What is known of the upstream of `proxy`."""
    found = proxy.kept.setdefault(__name__, Known())
    assert isinstance(found, Known)
    return found


def _named(
    asked: Asked, proxy: Proxy, body: Mapping[str, Any], media: Mapping[Place, Identified]
) -> dict[Place, bytes]:
    processing = msgspec.json.encode([body.get(name) for name in _PROCESSING], order="deterministic")
    salt, version = digests(proxy).salt(asked.realm), proxy.settings.version.encode()
    options = body.get("mm_processor_kwargs")
    sound = options.get("use_audio_in_video") if isinstance(options, Mapping) else None
    # A server may take the sound of a video as well, and takes none of one that is null. Whether it does is its own
    # setting where the request says nothing.
    silent = sound is False or (sound is None and proxy.settings.video_uuids)

    def uuid(found: Identified) -> bytes:
        parts = found.exact, found.identity, str(found.part["type"]).encode(), version, processing
        return blake3(framed("uuid", *parts), key=salt).digest(length=16)

    return {
        place: uuid(found)
        for place, found in media.items()
        if found.part["type"] in _NAMED or (found.part["type"] == "video_url" and silent)
    }


async def _post(asked: Asked, proxy: Proxy, body: Any) -> Reply:
    encoded = msgspec.json.encode(body)
    return await proxy.upstream.send("POST", asked.path, asked.query, asked.headers, encoded)


async def _judged(reply: Reply) -> Reply | None:
    """`reply`, readable from its beginning; None where it may be what it is because of what was left out."""
    if reply.status in _DOUBTED:
        with suppress(UpstreamError):
            await reply.read()  # or the connection could not be used again
        await reply.close()
        return None
    if reply.status != 200 or not _streamed(reply.headers):
        return reply
    chunks = reply.chunks()  # a stream begins with 200 even where its first event says that it failed
    try:
        first = await anext(chunks, b"")
    except BaseException:
        await reply.close()
        raise
    if any(words in first for words in _FORGOTTEN) and b'"error"' in first:
        await reply.close()
        return None
    return _Begun(reply, first, chunks)


def _streamed(headers: Headers) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


class _Begun:
    """A reply of which the first chunk was read already."""

    def __init__(self, reply: Reply, first: bytes, rest: AsyncIterator[bytes]) -> None:
        self.status, self.headers = reply.status, reply.headers
        self._reply, self._first, self._rest = reply, first, rest

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        async for chunk in self._rest:
            yield chunk

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def close(self) -> None:
        await self._reply.close()
