"""Streams: many at once, slow readers, clients that leave."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.upstream import Asked, run

from mmcache.server.asgi import Send
from mmcache.server.exchange import Answered, Proxy, Verdict
from mmcache.server.exchange import Asked as Question

MANY = 2000


class Ticks:
    """A stream that goes on when it is told to; counts how many were closed."""

    closed = 0

    def __init__(self, go: asyncio.Event, pieces: int) -> None:
        self._go, self._left = go, pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        if self._left == 0:
            await self._go.wait()
        return b"data: %d\n\n" % self._left

    async def aclose(self) -> None:
        Ticks.closed += 1


def ticking(go: asyncio.Event, pieces: int = 2) -> Callable[[Question, Proxy], object]:
    async def route(asked: Question, proxy: Proxy) -> Answered:
        headers = [(b"content-type", b"text/event-stream")]
        return Answered(200, headers, Ticks(go, pieces), Verdict("miss", "absent"), "small")

    return route


def request(body: bytes = b"{}") -> bytes:
    head = f"POST {ECHO} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer k\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("many", [50, pytest.param(MANY, marks=pytest.mark.slow)])
def test_many_streams_at_once(proxied: Callable[..., World], many: int) -> None:
    go = asyncio.Event()
    world = proxied({("POST", ECHO): ticking(go)})

    async def read() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(request())
        found = await reader.readuntil(b"data: 1\n\n")
        begun.append(1)
        if len(begun) == many:
            go.set()
        found += await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        return found

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(read() for _ in range(many)))

    begun: list[int] = []
    found = run(all_of_them)
    assert len(found) == many
    assert all(b"data: 0\n\n" in each for each in found)
    assert not world.frame.watch.flights


def test_a_reader_that_does_not_read_holds_nobody_and_fills_no_memory(proxied: Callable[..., World]) -> None:
    world = proxied({("POST", ECHO): ticking(asyncio.Event())})
    sent = [0]

    async def endless(asked: Asked, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            sent[0] += 65536
            await asyncio.sleep(0)

    world.upstream.on("/endless", endless)
    with socket.create_connection(("127.0.0.1", world.port)) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n")
        assert client.recv(1)
        before = -1
        while sent[0] != before:  # until the upstream is held back, too
            before = sent[0]
            for _ in range(5):
                assert world.client.get("/v1/models").status_code == 200
        assert sent[0] < 64 << 20
    while world.frame.watch.flights:
        threading.Event().wait(0.01)


def test_who_leaves_ends_only_its_own_stream(proxied: Callable[..., World]) -> None:
    go = asyncio.Event()
    Ticks.closed = 0
    world = proxied({("POST", ECHO): ticking(go)})
    clients = [socket.create_connection(("127.0.0.1", world.port), timeout=10) for _ in range(2)]
    for client in clients:
        client.sendall(request())
        found = b""
        while b"data: 1" not in found:
            found += client.recv(1000)
    clients[0].close()
    while len(world.frame.watch.flights) > 1:
        threading.Event().wait(0.01)
    assert Ticks.closed == 1

    async def release() -> None:
        go.set()

    run(release)
    found = b""
    while b"0\r\n\r\n" not in found:
        found += clients[1].recv(1000)
    assert b"data: 0" in found
    clients[1].close()


@pytest.mark.parametrize("path", [ECHO, "/v1/other"])
def test_who_leaves_while_the_upstream_thinks_stops_its_own_call(proxied: Callable[..., World], path: str) -> None:
    world = proxied()
    left = threading.Event()

    async def think(asked: Asked, send: Send) -> None:
        await asked.read()
        while (await asked.receive())["type"] != "http.disconnect":
            pass
        left.set()

    think.streams = True  # type: ignore[attr-defined]
    world.upstream.on(path, think)
    with socket.create_connection(("127.0.0.1", world.port)) as client:
        client.sendall(request(b'{"model":"small"}').replace(ECHO.encode(), path.encode()))
        while not world.upstream.count(path):
            left.wait(0.01)
    assert left.wait(10)
    while world.frame.watch.flights:
        left.wait(0.01)


def test_a_flight_that_was_ended_is_never_cancelled(proxied: Callable[..., World]) -> None:
    """The client closes as soon as it has its answer, thousands of times."""
    world = proxied()
    world.ask()
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
            client.sendall(request())
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
    assert not world.frame.watch.flights
