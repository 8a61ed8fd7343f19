"""`HttpUpstream`: the server behind the proxy, over HTTP/1.1 by aiohttp (why not httpx: decision 013)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from mmcache.model.errors import ProxyError, UpstreamError
from mmcache.server.config import ServerSettings
from mmcache.server.exchange import Headers
from mmcache.server.header_kinds import WRITTEN_ANEW, without_hops
from mmcache.server.tracing import Sending, current

_PIECE = 256 << 10
_HEAD_BYTES = 64 << 10
QUEUE_SECONDS = 30.0
"""How long a request waits for a connection where all are busy."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_FRAMING = frozenset({b"content-length", b"content-encoding"})

Body = bytes | Callable[[], AsyncIterator[bytes]]
"""Bytes, or what makes an iterator of them (called once)."""


class HttpUpstream:
    """Connections are kept and shared by all callers; nothing else is: no cookies, no redirects, no proxy settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._address = settings.upstream.rstrip("/")
        place = URL(self._address)
        self._place = place.host or "", place.port
        self._session: aiohttp.ClientSession | None = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:  # here: a session belongs to the loop that is running
            settings = self._settings
            tracing = aiohttp.TraceConfig()
            tracing.on_connection_reuseconn.append(_reused)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=settings.connections, keepalive_timeout=settings.keepalive_seconds, ttl_dns_cache=30
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                timeout=aiohttp.ClientTimeout(
                    connect=settings.connect_seconds + QUEUE_SECONDS,
                    sock_connect=settings.connect_seconds,
                    sock_read=settings.upstream_seconds,
                ),
                max_line_size=_HEAD_BYTES,
                max_field_size=_HEAD_BYTES,
                read_bufsize=_PIECE,
                trace_configs=[tracing],
            )
        return self._session

    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> HttpReply:
        """See `Upstream.send`: the answer comes as it is or is decompressed here."""
        kept = [pair for pair in headers if pair[0] != b"accept-encoding"]
        kept.append((b"accept-encoding", b"identity"))
        traced = current()
        if traced is None:
            return await self._request(method, path, query, kept, body, len(body), decoded=True)
        sending = traced.sending(method, path, *self._place)
        return await self._traced(sending, method, path, query, kept, body, len(body), decoded=True)

    async def forward(
        self, method: str, path: str, query: bytes, headers: Headers, body: Body, length: int | None
    ) -> HttpReply:
        """Pass a request on as it is, and its answer. length: of the body, None = it comes in chunks."""
        traced = current()
        if traced is None:
            return await self._request(method, path, query, headers, body, length, decoded=False)
        sending = traced.sending(method, None, *self._place)
        return await self._traced(sending, method, path, query, headers, body, length, decoded=False)

    async def _traced(
        self, sending: Sending, method: str, path: str, query: bytes, headers: Headers, body: Body,
        length: int | None, decoded: bool,
    ) -> HttpReply:  # fmt: skip
        try:
            reply = await self._request(method, path, query, sending.headers(headers), body, length, decoded)
        except BaseException as error:
            sending.end(error.code if isinstance(error, ProxyError) else "given-up")
            raise
        sending.answered(reply.status)
        reply.sending = sending
        return reply

    async def _request(
        self, method: str, path: str, query: bytes, headers: Headers, body: Body, length: int | None, decoded: bool
    ) -> HttpReply:
        target = self._address + path + ("?" + query.decode("latin-1") if query else "")
        sent: CIMultiDict[str] = CIMultiDict()
        try:
            for name, value in without_hops(headers):
                if name not in WRITTEN_ANEW:
                    sent.add(name.decode("ascii"), value.decode())
        except UnicodeDecodeError as error:
            raise ProxyError("a header's value is not UTF-8") from error
        if length is not None and (length or not isinstance(body, bytes) or method in ("POST", "PUT", "PATCH")):
            sent["content-length"] = str(length)
        # What only passes may have been done although no answer came (RFC 9110, section 9.2.2); to compute an answer
        # twice does no harm.
        again = isinstance(body, bytes) and (decoded or method in _IDEMPOTENT)
        while True:
            trace = SimpleNamespace(reused=False)
            try:
                response = await self._opened().request(
                    method, URL(target, encoded=True), headers=sent, data=_data(body), allow_redirects=False,
                    trace_request_ctx=trace,
                )  # fmt: skip
                return HttpReply(response, self._settings.largest_answer_bytes, decoded)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError, aiohttp.ClientOSError) as error:
                # The upstream has closed an idle connection just when we took it up.
                if not (again and trace.reused) or isinstance(error, aiohttp.ClientConnectorError):
                    raise _failed(error) from error
                again = False
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise _failed(error) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class HttpReply:
    """See `Reply`. `decoded`: the body is given without its `Content-Encoding`."""

    __slots__ = ("_limit", "_response", "_unpack", "headers", "sending", "status")

    def __init__(self, response: aiohttp.ClientResponse, limit: int, decoded: bool) -> None:
        self._response, self._limit = response, limit
        self.sending: Sending | None = None
        """Ends with the answer, where it is recorded."""
        self.status = response.status
        self.headers: Headers = without_hops((name.lower(), value) for name, value in response.raw_headers)
        self._unpack: Any = None
        if decoded:
            encoding = b",".join(value for name, value in self.headers if name == b"content-encoding").strip().lower()
            if encoding not in (b"", b"identity"):
                if encoding not in (b"gzip", b"x-gzip", b"deflate"):
                    response.close()
                    raise UpstreamError("the upstream compresses in a way that it was not asked for")
                self._unpack = zlib.decompressobj(15 if encoding == b"deflate" else 31)
            self.headers = [pair for pair in self.headers if pair[0] not in _FRAMING]

    def chunks(self) -> Chunks:
        """The body as it comes; `aclose` gives it up. Raises `UpstreamError` when it breaks off."""
        return Chunks(self)

    async def next(self) -> bytes:
        """The next piece, b"" at the end. Raises `UpstreamError`."""
        content = self._response.content
        while True:
            try:
                piece: bytes = await content.readany()
                if self._unpack is not None:
                    piece = self._unpacked(piece)
                    if not piece and not content.at_eof():
                        continue
                if not piece and self.sending is not None:
                    self.sending.end()
                return piece
            except (aiohttp.ClientError, TimeoutError, OSError, zlib.error) as error:
                self._response.close()
                failed = _failed(error)
                if self.sending is not None:
                    self.sending.end(failed.code)
                raise failed from error

    def _unpacked(self, piece: bytes) -> bytes:
        if piece:
            found: bytes = self._unpack.decompress(piece, self._limit)
            if self._unpack.unconsumed_tail or self._unpack.unused_data:
                raise aiohttp.ClientPayloadError("too much in one compressed piece, or behind the end")
            return found
        if not self._unpack.eof:
            raise aiohttp.ClientPayloadError("the compressed answer breaks off")
        return b""

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamError`, also for one above the limit."""
        pieces, size = [], 0
        while piece := await self.next():
            pieces.append(piece)
            size += len(piece)
            if size > self._limit:
                self._response.close()
                raise UpstreamError(f"the upstream's answer is larger than {self._limit:,} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def close(self) -> None:
        """Give the connection back, or cut it where the body was not read to its end."""
        self._response.close()
        if self.sending is not None:
            self.sending.end()


class Chunks:
    """An iterator that can be closed before its first step, too, unlike a generator."""

    __slots__ = ("_reply",)

    def __init__(self, reply: HttpReply) -> None:
        self._reply = reply

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._reply.next()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """See `Reply.close`."""
        await self._reply.close()


async def _reused(session: Any, context: SimpleNamespace, parameters: Any) -> None:
    context.trace_request_ctx.reused = True


def _data(body: Body) -> Any:
    if not isinstance(body, bytes):
        return body()
    return (body if len(body) <= _PIECE else _sliced(body)) if body else None


async def _sliced(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PIECE):
        yield body[start : start + _PIECE]


def _failed(error: BaseException) -> UpstreamError:
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return UpstreamError("the server behind the proxy took too long", status=504, code="upstream_timeout")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamError("the server behind the proxy cannot be reached", code="upstream_unreachable")
    return UpstreamError(f"the server behind the proxy broke off ({type(error).__name__})")
