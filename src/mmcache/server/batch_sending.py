"""What a batch sends upstream, and what came back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from mmcache.server.exchange import Asked, Headers, Proxy
from mmcache.server.media import uuids
from mmcache.server.media.parts import Identified
from mmcache.server.media.uuids import Place
from mmcache.server.upstream import Reply

T = TypeVar("T")
LARGE = 128 << 10
"""Bytes of a body that take long enough to read or write for a thread."""

_json = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OF_THE_BODY = {b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"etag", b"content-md5"}


@dataclass(slots=True)
class Body:
    """A request's body. With media it is given as objects: what is sent for a picture is decided when it is sent."""

    raw: bytes = b""
    tree: Mapping[str, Any] = field(default_factory=dict)
    media: Mapping[Place, Identified] = field(default_factory=dict)

    @staticmethod
    def of(fields: Mapping[str, bytes]) -> Body:
        """The object with these fields, whose values are JSON already."""
        return Body(b"{%b}" % b",".join(b"%b:%b" % (_json(name), value) for name, value in fields.items()))


@dataclass(slots=True)
class Received:
    """A reply."""

    status: int
    headers: Headers
    body: bytes


class TooLargeError(Exception):
    """A reply is larger than what may be read whole, which is no reason to keep it from its caller."""

    def __init__(self, reply: Reply, rest: Rest) -> None:
        super().__init__("too-large")
        self.reply, self.rest = reply, rest


class Rest:
    """What was read of it, and then what still comes; closes it at its end."""

    def __init__(self, pieces: list[bytes], chunks: AsyncIterator[bytes], reply: Reply) -> None:
        self._pieces, self._chunks, self._reply = pieces, chunks, reply

    def __aiter__(self) -> Rest:
        return self

    async def __anext__(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else await anext(self._chunks)

    async def aclose(self) -> None:
        """Give the connection back, or cut it."""
        self._pieces.clear()
        await self._reply.close()


@dataclass(slots=True)
class Read:
    """What a reply holds."""

    values: Sequence[tuple[Any, ...]]
    """Immutable, one an item that was asked for."""
    envelope: Mapping[str, Any]
    """The fields of the reply, as JSON."""
    usage: Any
    """What the upstream counted."""


async def apart(large: bool, work: Callable[..., T], *given: Any) -> T:
    """Do `work`; in a thread if it is large, so that no other client waits for it."""
    return await asyncio.to_thread(work, *given) if large else work(*given)


class Odd(Exception):
    """A reply is not what the protocol says, so nothing of it is stored."""


async def received(asked: Asked, proxy: Proxy, body: Body) -> Received:
    """POST it. Raises `UpstreamError`, and `TooLargeError`, whose `rest` is to be read or closed."""
    if body.media:
        reply = (await uuids.send(asked, proxy, body.tree, body.media)).reply
    else:
        reply = await proxy.upstream.send(asked.method, asked.path, asked.query, asked.headers, body.raw)
    pieces: list[bytes] = []
    size, chunks = 0, reply.chunks()
    try:
        async for piece in chunks:
            pieces.append(piece)
            size += len(piece)
            if size > proxy.settings.largest_answer_bytes:
                raise TooLargeError(reply, Rest(pieces, chunks, reply))
    except TooLargeError:
        raise
    except BaseException:
        await reply.close()
        raise
    await reply.close()
    return Received(reply.status, reply.headers, pieces[0] if len(pieces) == 1 else b"".join(pieces))


def passed_on(headers: Headers, *, rewritten: bool = False) -> Headers:
    """The headers of a reply that still hold for the caller's. rewritten: its body is another one."""
    if not rewritten:
        return [(name, value) for name, value in headers if name not in (b"content-length", b"transfer-encoding")]
    kept = [(name, value) for name, value in headers if name not in _OF_THE_BODY]
    return [(b"content-type", b"application/json"), *kept]


def raw_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, each as it was written. Raises `Odd`."""
    try:
        return _raws(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Odd(f"no JSON object: {error}") from error


def raw_items(value: msgspec.Raw | bytes) -> list[msgspec.Raw]:
    """The elements of a JSON list, each as it was written. Raises `Odd`."""
    try:
        return _raw_list(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Odd(f"no list: {error}") from error


_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_field(raw: msgspec.Raw | bytes) -> Any:
    """A value of a reply. Raises `Odd`."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Odd(f"no JSON: {error}") from error


def read_usage(envelope: Mapping[str, msgspec.Raw]) -> tuple[Any, int]:
    """What was counted (None = that is not told), and the tokens of it (-1 = not told)."""
    try:
        usage = msgspec.json.decode(envelope["usage"])
        tokens = usage["prompt_tokens"] if "prompt_tokens" in usage else usage["total_tokens"]
    except (KeyError, TypeError, RecursionError, msgspec.MsgspecError, UnicodeDecodeError):
        return None, -1
    return usage, tokens if type(tokens) is int and tokens >= 0 else -1


def read_model(envelope: Mapping[str, msgspec.Raw]) -> str:
    """The model's name, as the reply has it; empty where it has none. Raises `Odd`."""
    try:
        found = msgspec.json.decode(envelope["model"], type=str | None) if "model" in envelope else None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Odd("its model is no name") from error
    return found or ""


def told_usage(usage: Any) -> dict[str, bytes]:
    """The field of an answer. None = as the upstream has it, or none."""
    return {} if usage is None else {"usage": _json(usage)}


def unbilled(value: Any) -> Any:
    """A usage of the same form in which nothing was used."""
    if isinstance(value, Mapping):
        return {name: unbilled(each) for name, each in value.items()}
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value
