"""`identified`: one media part of a request → what it shows, in bytes that may stand in a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mmcache.server.exchange import Asked, Proxy

Kind = Literal["image", "audio", "video", "file", "embeds"]


@dataclass(frozen=True, slots=True)
class Identified:
    """A part whose bytes are known."""

    kind: Kind
    identity: bytes
    """32 bytes that are equal exactly where nothing in the part could change an answer: its kind, its content (pixels
    or bytes, by the rules), its `detail`, `format`, label and file name. Keyed with the tenant's salt."""
    exact: bytes
    """32 bytes: of its kind and exact bytes, whatever the rules say. Keyed with the tenant's salt."""
    raw: bytes = field(repr=False)
    """The decoded file."""
    part: Mapping[str, Any] = field(repr=False)
    """What must be sent upstream in its place, so that the model sees what the key says: an address became the bytes
    that we fetched, an odd spelling of base64 the plain one, and a caller's `uuid` is left out."""
    rewritten: bool = False
    """Whether `part` is another one than was given."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part of which nobody can say what the model will see. The request is passed on, uncached."""

    reason: str
    """`unknown-part`, `remote-media`, `uuid-without-body`, `file-id`, `media-too-large`."""


async def identified(part: Mapping[str, Any], asked: Asked, proxy: Proxy) -> Identified | Unknown:
    """What `part` (an element of a message's `content`, not text) shows. Never raises for what a caller may send."""
    return Unknown("unknown-part")
