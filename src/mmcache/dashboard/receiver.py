"""Where OTLP arrives. A sender is answered when what it sent is on the disk."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mmcache.dashboard import wire
from mmcache.dashboard.graph_taken import views_of
from mmcache.dashboard.points import points_of
from mmcache.dashboard.store import Store
from mmcache.dashboard.taken import AHEAD_SECONDS, spans_of
from mmcache.model.errors import DashboardError

BODY_SECONDS = 30.0
"""A body that takes longer to come is given up."""
AGAIN_SECONDS = 2
AT_ONCE = 64
"""Bodies that are held at the same time; further senders are told to come again."""


class Receiver:
    """`/v1/traces`, `/v1/metrics`, `/v1/logs`."""

    def __init__(self, store: Store) -> None:
        self._store, self._settings = store, store.settings
        self._readers = ThreadPoolExecutor(2, "mmcache-dashboard-otlp")
        self._held = 0
        self.counts: Counter[str] = Counter()
        """What came, by signal; and `refused`."""

    def close(self) -> None:
        """No more comes."""
        self._readers.shutdown(wait=True)

    async def take(self, request: Request) -> Response:
        """One request of any signal."""
        signal = request.url.path.rsplit("/", 1)[-1]
        kind = wire.PROTOBUF
        try:
            self._may(request)
            kind = wire.encoding(request.headers.get("content-type", ""))
            if self._held >= AT_ONCE:
                raise wire.RefusedError("too many senders at once; send it again later", 429)
            self._held += 1
            try:
                refused, why = await self._taken(signal, kind, request)
            finally:
                self._held -= 1
        except DashboardError as error:
            self.counts["refused"] += 1
            headers = {"retry-after": str(AGAIN_SECONDS)} if error.status in (429, 503) else {}
            return Response(wire.refusal(error.status, str(error), kind), error.status, headers, kind)
        return Response(wire.answer(signal, kind, refused, why), 200, media_type=kind)

    def _may(self, request: Request) -> None:
        token = self._settings.ingest_token
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise wire.RefusedError("sending here needs the ingest token: authorization: Bearer TOKEN", 401)

    async def _taken(self, signal: str, kind: str, request: Request) -> tuple[int, str]:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._body(request)
        except TimeoutError as error:
            raise wire.RefusedError("the body took too long", 408) from error
        except ClientDisconnect as error:
            raise wire.RefusedError("the sender has gone") from error
        coding = request.headers.get("content-encoding", "")
        loop = asyncio.get_running_loop()
        written, refused, why = await loop.run_in_executor(self._readers, self._read, signal, kind, coding, body)
        if written is not None:
            await asyncio.wrap_future(written)
        return refused, why

    async def _body(self, request: Request) -> bytes:
        most = self._settings.body_bytes
        too_large = f"a body has at most {most} bytes; send smaller batches"
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:19]) > most:
            raise wire.RefusedError(too_large, 413)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise wire.RefusedError(too_large, 413)
        return bytes(body)

    def _read(self, signal: str, kind: str, coding: str, body: bytes) -> tuple[Any, int, str]:
        request = wire.message(signal, wire.inflated(body, coding, self._settings.inflated_bytes), kind)
        now = time.time()
        oldest_us = self._store.floor_us
        if signal == "traces":
            read = spans_of(request, int(now * 1e6), oldest_us)
            self.counts["spans"] += len(read.spans)
            written = self._store.put(read.spans) if read.spans else None
            return written, read.refused.total(), "; ".join(f"{n} spans: {why}" for why, n in read.refused.items())
        if signal == "metrics":
            points, late = points_of(request, oldest_us / 1e6, now + AHEAD_SECONDS)
            self.counts["points"] += len(points)
            return self._store.put(points=points) if points else None, late, f"{late} points: of no time that is kept"
        told = views_of(request)
        self.counts["logs"] += told.others
        self.counts["views"] += len(told.views)
        shown = self._store.show(told.views) if told.views else None
        return shown, told.refused.total(), "; ".join(f"{n} views: {why}" for why, n in told.refused.items())
