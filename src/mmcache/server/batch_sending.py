"""What a batch sends upstream, and what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mmcache.server.exchange import Asked, Headers, Proxy
from mmcache.server.media import uuids
from mmcache.server.media.parts import Identified
from mmcache.server.media.uuids import Place

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
    """A whole reply."""

    status: int
    headers: Headers
    body: bytes


@dataclass(slots=True)
class Read:
    """What a reply holds."""

    values: Sequence[tuple[Any, ...]]
    """Immutable, one an item that was asked for."""
    envelope: Mapping[str, Any]
    """The fields of the reply, as JSON."""
    usage: Any
    """What the upstream counted."""


class Odd(Exception):
    """A reply is not what the protocol says, so nothing of it is stored."""


async def received(asked: Asked, proxy: Proxy, body: Body) -> Received:
    """POST it. Raises `UpstreamError`."""
    if body.media:
        reply = (await uuids.send(asked, proxy, body.tree, body.media)).reply
    else:
        reply = await proxy.upstream.send(asked.method, asked.path, asked.query, asked.headers, body.raw)
    try:
        return Received(reply.status, reply.headers, await reply.read())
    finally:
        await reply.close()


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


def read_usage(envelope: Mapping[str, msgspec.Raw]) -> tuple[Any, int]:
    """What was counted, and the tokens of it (-1 = not told)."""
    try:
        usage = msgspec.json.decode(envelope["usage"])
        tokens = usage["prompt_tokens"] if "prompt_tokens" in usage else usage["total_tokens"]
    except (KeyError, TypeError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}, -1
    return usage, tokens if type(tokens) is int and tokens >= 0 else -1


def read_model(envelope: Mapping[str, msgspec.Raw]) -> str:
    """The model's name, as the reply has it; empty where it has none. Raises `Odd`."""
    try:
        found = msgspec.json.decode(envelope["model"], type=str | None) if "model" in envelope else None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Odd("its model is no name") from error
    return found or ""


def unbilled(value: Any) -> Any:
    """A usage of the same form in which nothing was used."""
    if isinstance(value, Mapping):
        return {name: unbilled(each) for name, each in value.items()}
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value
