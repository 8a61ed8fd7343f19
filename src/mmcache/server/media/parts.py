"""`identified`: one media part of a request → what it shows, in bytes that may stand in a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from mmcache.keys.framing import framed
from mmcache.server.exchange import Asked, Proxy
from mmcache.server.media import data_urls
from mmcache.server.media.data_urls import Decoded, OddSpellingError
from mmcache.server.media.identity import INLINE_BYTES, Digests, digests
from mmcache.server.media.plain import sniffed
from mmcache.server.media.revalidate import current
from mmcache.server.media.shapes import Kind, Shape, UnknownPartError, shape

_PICTURE_PARAMETERS = frozenset({"charset", "name"})
"""Of a media type; no reader of pictures heeds them."""
_SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True)
class Identified:
    """A part whose bytes are known."""

    kind: Kind
    identity: bytes
    """32 bytes that are equal exactly where nothing in the part could change an answer: its kind, its content (pixels
    or bytes, by the rules), its `detail`, `format`, label and file name. Keyed with the tenant's salt."""
    exact: bytes
    """32 bytes: of its kind and exact bytes, whatever the rules say. Keyed with the tenant's salt."""
    size: int
    """Bytes of the decoded file."""
    part: Mapping[str, Any] = field(repr=False)
    """What must be sent upstream in its place, so that the model sees what the key says: an address became the bytes
    that we fetched, an odd spelling of base64 the plain one, and a caller's `uuid` is left out."""
    read: Callable[[], bytes] = field(repr=False, compare=False)
    """Gives the decoded file; decodes it, where it was known without."""
    rewritten: bool = False
    """Whether `part` is another one than was given."""

    @property
    def raw(self) -> bytes:
        """The decoded file."""
        return self.read()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part of which nobody can say what the model will see. The request is passed on, uncached."""

    reason: str
    """`unknown-part`, `odd-spelling`, `remote-media`, `uuid-without-body`, `file-id`, `too-many-parts`."""


async def identified(part: Mapping[str, Any], asked: Asked, proxy: Proxy) -> Identified | Unknown:
    """What `part` (an element of a message's `content`, not text) shows. Never raises for what a caller may send."""
    try:
        return await _identified(part, asked, proxy)
    except UnknownPartError as error:
        return Unknown(error.reason)
    except (OddSpellingError, UnicodeEncodeError):  # half a surrogate pair, in a label
        return Unknown("odd-spelling")


async def all_identified(parts: Sequence[Mapping[str, Any]], asked: Asked, proxy: Proxy) -> list[Identified] | Unknown:
    """All of a request's, in order, a few side by side; or why one is not, or that they are too many."""
    if len(parts) > asked.rules.most_parts:
        return Unknown("too-many-parts")
    found: list[Identified] = []
    for at in range(0, len(parts), _SIDE_BY_SIDE):
        for one in await asyncio.gather(*(identified(part, asked, proxy) for part in parts[at : at + _SIDE_BY_SIDE])):
            if isinstance(one, Unknown):
                return one
            found.append(one)
        if sum(one.size for one in found) > asked.rules.largest_body_bytes:
            return Unknown("too-many-parts")  # fetched ones
    return found


async def _identified(part: Mapping[str, Any], asked: Asked, proxy: Proxy) -> Identified:
    found, made = shape(part), digests(proxy)
    if found.form == "tensors":
        return _tensors(part, found, asked, made)
    body = found.body
    assert isinstance(body, str)
    if found.form == "url" and body[:8].lower().startswith(("http://", "https://")):
        decoded = await current(body, found.kind, asked, proxy)
        return (await _from_bytes(found, decoded, asked, made))[0]
    if found.form == "url" and not data_urls.is_data_url(body[:32]):
        raise UnknownPartError("unknown-part")
    read = data_urls.decoded if found.form == "base64" else _frames if _is_frames(found.kind, body) else data_urls.read
    text = made.text(asked.realm, body, found.kind, found.form, asked.rules.identity, *found.labels)
    if (known := made.known(text)) is not None:  # decoding base64 takes twenty times as long as hashing it
        identity, exact, size = known
        given = found.put(body) if found.named else part
        return Identified(found.kind, identity, exact, size, given, lambda: read(body).data, found.named)
    decoded = read(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(read, body)
    one, lasting = await _from_bytes(found, decoded, asked, made)
    if not decoded.plain:
        return one
    if lasting:
        made.learn(text, one.identity, one.exact, one.size)
    return replace(one, part=found.put(body) if found.named else part, rewritten=found.named)


async def _from_bytes(found: Shape, decoded: Decoded, asked: Asked, made: Digests) -> tuple[Identified, bool]:
    """What was decoded, in its plain form; and whether it will be known by the same identity for ever."""
    raw = decoded.data
    exact = made.exact(found.kind, raw, asked.realm)
    content, lasting = exact, True
    if found.kind == "image" and asked.rules.identity == "pixels":
        content, lasting = await made.content(raw, exact, asked.realm)
    parts = [text.encode() for text in (found.kind, _label(found, decoded), *found.labels)]
    identity = made.sealed(asked.realm, content, *parts)
    mime = decoded.mime + decoded.parameters
    body = "" if decoded.plain else data_urls.encoded(raw) if found.form == "base64" else data_urls.data_url(mime, raw)
    return Identified(found.kind, identity, exact, len(raw), found.put(body), lambda: raw, rewritten=True), lasting


def _label(found: Shape, decoded: Decoded) -> str:
    """What the address says its bytes are, where somebody might go by it: pictures are told by how they begin."""
    named = {parameter.partition("=")[0] for parameter in decoded.parameters.split(";")[1:]}
    if found.kind == "image" and sniffed(decoded.data) and named <= _PICTURE_PARAMETERS:
        kind, _, _ = decoded.mime.partition("/")
        if kind in ("", "image"):
            return ""
    return decoded.mime + decoded.parameters


def _is_frames(kind: Kind, url: str) -> bool:
    return kind == "video" and url[:32].strip().lower().startswith("data:video/jpeg")


def _frames(url: str) -> Decoded:
    """vLLM's own form of a video, pictures in base64 with commas between: known by its text, and sent as it is."""
    if not url.isascii():
        raise OddSpellingError("characters outside ASCII")
    return Decoded(url.encode(), True, "video/jpeg-frames")


def _tensors(part: Mapping[str, Any], found: Shape, asked: Asked, made: Digests) -> Identified:
    if isinstance(found.body, str):
        raw = _plainly(found.body)
    else:
        pieces = []
        for name, value in sorted(found.body.items()):
            if isinstance(value, str):
                pieces += [name.encode(), b"base64", _plainly(value)]
            elif isinstance(value, list) and all(type(number) in (int, float) for number in value):
                pieces += [name.encode(), b"numbers", msgspec.json.encode(value)]
            else:
                raise UnknownPartError("unknown-part")
        raw = framed("tensors", *pieces)
    exact = made.exact("embeds", raw, asked.realm)
    named = type(found.body).__name__ if isinstance(found.body, str) else "mapping"
    identity = made.sealed(asked.realm, exact, b"embeds", named.encode(), *(text.encode() for text in found.labels))
    given = found.put("") if found.named else part
    return Identified("embeds", identity, exact, len(raw), given, lambda: raw, rewritten=found.named)


def _plainly(text: str) -> bytes:
    """What plain base64 holds: these bytes go upstream as they came."""
    decoded = data_urls.decoded(text)
    if not decoded.plain:
        raise OddSpellingError("not plain")
    return decoded.data
