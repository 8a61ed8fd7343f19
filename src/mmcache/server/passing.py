"""What goes through untouched: both bodies as they come, whatever the method, with the upstream's own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from mmcache.model.errors import ProxyError
from mmcache.server.exchange import Answered, Headers, Verdict
from mmcache.server.upstream import Reply
from mmcache.server.watch import Flight

SILENT_SECONDS = 60.0
"""Longest silence of a client that sends a body."""
_NO_BODY = frozenset({204, 304})
_REFUSED = frozenset({"TRACE", "CONNECT"})


class Forwarding(Protocol):
    """An upstream that takes bodies in pieces."""

    async def forward(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes | Callable[[], AsyncIterator[bytes]],
        length: int | None,
    ) -> Reply: ...  # fmt: skip


async def pass_on(
    upstream: Forwarding, method: str, path: str, query: bytes, headers: Headers, flight: Flight, verdict: Verdict
) -> Answered:
    """A request whose body was not read yet. Raises `ProxyError` for what cannot pass, `UpstreamError`."""
    if method in _REFUSED:
        raise ProxyError(f"{method} does not go through a proxy of this kind", status=405, code="method")
    if not path.startswith("/"):  # behind the upstream's address it might name another host
        raise ProxyError("a request's target begins with a slash", code="target")
    length, chunked = _framing(headers)
    body: bytes | Callable[[], AsyncIterator[bytes]] = b""
    if chunked or length:
        body = lambda: _upload(flight)  # noqa: E731
    else:
        flight.readable = True
    return answered(await upstream.forward(method, path, query, headers, body, length), verdict)


def answered(reply: Reply, verdict: Verdict) -> Answered:
    """An answer of the upstream's, to be sent as it comes."""
    headers = reply.headers
    if reply.status in _NO_BODY:  # a length beside no body confuses servers
        headers = [pair for pair in headers if pair[0] != b"content-length"]
    return Answered(reply.status, headers, reply.chunks(), verdict)


def _framing(headers: Headers) -> tuple[int | None, bool]:
    """The body's length, and whether it comes in chunks. Upgrades end here: they are no requests any more."""
    length, chunked = None, False
    for name, value in headers:
        if name == b"content-length":
            if not value.isdigit() or (length is not None and length != int(value)):
                raise ProxyError("content-length is given twice, or is no number", code="framing")
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"upgrade" and b"websocket" in value.lower():
            raise ProxyError("WebSockets do not go through; connect to the upstream", status=501, code="websocket")
    if chunked and length is not None:
        raise ProxyError("both content-length and transfer-encoding are given", code="framing")
    return length, chunked


async def _upload(flight: Flight) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await asyncio.wait_for(flight.receive(), SILENT_SECONDS)
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client has gone")
        more = message.get("more_body", False)
        if not more:
            flight.readable = True
        if body := message.get("body", b""):
            yield body
