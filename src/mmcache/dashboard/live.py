"""`/api/v1/live`: server-sent events, at most one a second, when something came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from mmcache.dashboard.store import Store
from mmcache.model.errors import DashboardError

EVERY = 1.0
HEARTBEAT = 15
"""Ticks without news, after which a comment keeps the connection open."""
LISTENERS = 64
_encode = msgspec.json.Encoder().encode


class Live:
    """Who listens, and the end of it."""

    def __init__(self, store: Store, every: float = EVERY) -> None:
        self._store, self._every = store, every
        self._listeners = 0
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Every stream ends."""
        self._ending.set()

    async def listen(self, request: Request) -> StreamingResponse:
        """`GET /api/v1/live`."""
        if self._listeners >= LISTENERS:
            raise DashboardError("too many listeners; ask again later", status=503, code="busy")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._ticks(), 200, headers, "text/event-stream")

    async def _ticks(self) -> AsyncIterator[bytes]:
        self._listeners += 1
        try:
            came, quiet = self._store.came, 0
            changes, spans, lookups, hits = came.changes, came.spans, came.lookups, came.hits
            views = self._store.views.came
            yield b": mmcache\n\n"
            while not await self._ended():
                quiet += 1
                if self._store.views.came != views:
                    new, views, quiet = self._store.views.came - views, self._store.views.came, 0
                    yield b"event: graph\ndata: %b\n\n" % _encode({"views": new})
                if came.changes != changes:
                    asked, found = came.lookups - lookups, came.hits - hits
                    said = {
                        "to": came.newest or None,
                        "spans": came.spans - spans,
                        "lookups": round(asked, 6),
                        "hits": round(found, 6),
                        "ratio": found / asked if asked > 0 else None,
                    }
                    changes, spans, lookups, hits = came.changes, came.spans, came.lookups, came.hits
                    quiet = 0
                    yield b"event: tick\ndata: %b\n\n" % _encode(said)
                elif quiet and quiet % HEARTBEAT == 0:
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1

    async def _ended(self) -> bool:
        try:
            await asyncio.wait_for(self._ending.wait(), self._every)
        except TimeoutError:
            return False
        return True
