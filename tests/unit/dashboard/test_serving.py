"""Connections: heads that never end are given up, others are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from mmcache.dashboard import serving

PATIENCE = 60


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Of an application."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """To a server with the dashboard's protocol."""
    config, state = uvicorn.Config(answer, lifespan="off", log_config=None, ws="none"), ServerState()
    config.load()
    listening = serving.listen("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: serving.Protocol(config, state, {}), sock=listening)
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: "])
async def test_a_head_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.02)
    async with connected() as (reader, writer):
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_after_an_answer_the_next_head_has_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (reader, writer):
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE)).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(serving, "HEAD_SECONDS", 0.02)
        writer.write(b"GET / HT")
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
