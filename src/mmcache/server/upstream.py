"""`Upstream`: the server behind the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from mmcache.server.exchange import Headers


class Reply(Protocol):
    """What the upstream answered; its body is read once."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `UpstreamError` when it breaks off."""
        ...

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamError`, also for one above the limit."""
        ...

    async def close(self) -> None:
        """Give the connection back, or cut it if the body was not read to its end."""
        ...


class Upstream(Protocol):
    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Reply:
        """Send it. Hop-by-hop headers and those of ours (`x-mmcache-*`) are left out; the caller's `authorization` goes
        along, and `content-length`, `host` and `accept-encoding` are written anew. Raises `UpstreamError`."""
        ...

    async def close(self) -> None: ...
