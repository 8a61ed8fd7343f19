"""Sending requests with media: as their keys say, and to vLLM by `uuid` alone where it has the media already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmcache.server.exchange import Asked, Proxy
from mmcache.server.media.parts import Identified
from mmcache.server.upstream import Reply

Place = tuple[str | int, ...]
"""Where a part stands in a body: `("messages", 0, "content", 1)`."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came back."""

    reply: Reply
    uuids: int = 0
    """Parts that went as a uuid alone (say so in the verdict's details)."""
    resent: bool = False
    """Whether the upstream had forgotten one, and got them all in full."""


async def send(asked: Asked, proxy: Proxy, body: Mapping[str, Any], media: Mapping[Place, Identified]) -> Sent:
    """POST `body` upstream, with each of `media` in the form that its identity describes. Raises `UpstreamError`."""
    raise NotImplementedError
