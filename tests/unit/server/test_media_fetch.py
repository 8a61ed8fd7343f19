"""Fetching for a caller, against real servers on loopback: what is refused, and what never happens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from tests.unit.server.media_world import Handler, Origin, origin

from mmcache.model.errors import ProxyError
from mmcache.server.config import FetchRules
from mmcache.server.media import fetch
from mmcache.server.media.fetch import Fetched, Fetcher, Validators

LOCAL = FetchRules(allowed=True, schemes=("http",), private=True, largest_bytes=1000, timeout_seconds=30)
Serve = Callable[[Handler], Awaitable[Origin]]
Fetch = Callable[..., Fetcher]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts origins."""
    started: list[Origin] = []

    async def start(handler: Handler) -> Origin:
        started.append(await origin(handler))
        return started[-1]

    yield start
    for one in started:
        await one.close()


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetch]:
    """Makes fetchers."""
    made: list[Fetcher] = []

    def make(rules: FetchRules = LOCAL, **options: Any) -> Fetcher:
        made.append(Fetcher(rules, **options))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def hello(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"hello", content_type="image/png", headers={"etag": '"1"'})


def answering(*numbers: list[str]) -> tuple[fetch.Resolve, list[str]]:
    """A resolver that gives one list after another, the last one for ever; and what it was asked."""
    asked: list[str] = []

    async def ask(host: str, port: int) -> list[tuple[int, str]]:
        asked.append(host)
        given = numbers[min(len(asked), len(numbers)) - 1]
        return [(socket.AF_INET6 if ":" in number else socket.AF_INET, number) for number in given]

    return ask, asked


async def refused(one: Fetcher, url: str, known: Validators | None = None) -> str:
    with pytest.raises(ProxyError) as error:
        await one.get(url, known)
    assert error.value.code == "remote-media"
    return str(error.value)


async def test_a_good_address_is_fetched_and_nothing_of_ours_goes_along(serve: Serve, fetcher: Fetch) -> None:
    there = await serve(hello)
    found = await fetcher().get(there.url("/a%2Fb?c=%20"))
    assert found == Fetched("image/png", b"hello", Validators(there.url("/a%2Fb?c=%20"), etag='"1"'))
    (request,) = there.seen
    assert request.raw_path == "/a%2Fb?c=%20"
    assert {name.lower() for name in request.headers} == {
        "host", "accept", "accept-encoding", "user-agent", "connection",
    }  # fmt: skip
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "numbers",
    [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["10.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], []],
)
async def test_a_name_that_leads_inside_is_refused_before_anybody_is_connected_to(
    numbers: list[str], serve: Serve, fetcher: Fetch
) -> None:
    there = await serve(hello)
    ask, asked = answering(numbers)
    hosts = (f"files.example:{there.server.port}",)
    guarded = fetcher(FetchRules(allowed=True, schemes=("http",), hosts=hosts), ask=ask)
    await refused(guarded, there.url("/", "files.example"))
    assert asked == ["files.example"]
    assert not there.seen


async def test_the_last_gate_holds_where_the_others_are_open(
    serve: Serve, fetcher: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await serve(hello)
    hosts = (f"files.example:{there.server.port}",)
    guarded = fetcher(FetchRules(allowed=True, schemes=("http",), hosts=hosts))

    async def resolve(self: Any, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [found]

    monkeypatch.setattr(fetch._Guarded, "resolve", resolve)
    await refused(guarded, there.url("/", "files.example"))
    assert not there.seen


async def test_a_name_is_asked_for_once_and_what_it_says_later_is_checked_anew(
    serve: Serve, fetcher: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "public", lambda number: number == "127.0.0.1")  # as if it were one of the internet
    there = await serve(hello)
    ask, asked = answering(["127.0.0.1"], ["127.0.0.2"])
    hosts = (f"files.example:{there.server.port}",)
    guarded = fetcher(FetchRules(allowed=True, schemes=("http",), hosts=hosts), ask=ask)
    assert await guarded.get(there.url("/", "files.example")) is not None
    assert asked == ["files.example"]
    await refused(guarded, there.url("/", "files.example"))
    assert len(there.seen) == 1


@pytest.mark.parametrize(
    "location",
    ["http://10.0.0.1/", "http://169.254.169.254/latest/", "http://inside.example/", "http://a@files.example/",
     "file:///etc/passwd", "http://0x7f.1/", "http://localhost/", "//[::1]/", "http://other.example/", ""],
)  # fmt: skip
async def test_a_redirect_leads_nowhere_that_the_address_itself_may_not(
    location: str, serve: Serve, fetcher: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "public", lambda number: number == "127.0.0.1")

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"location": location})

    there = await serve(elsewhere)
    ask, _ = answering(["127.0.0.1"], ["10.0.0.1"])
    hosts = (f"files.example:{there.server.port}", "10.0.0.1", "169.254.169.254", "inside.example", "localhost", "::1")
    guarded = fetcher(
        FetchRules(allowed=True, schemes=("http",), hosts=hosts, redirects=0 if not location else 3), ask=ask
    )
    await refused(guarded, there.url("/", "files.example"))
    assert len(there.seen) == 1


async def test_good_redirects_are_followed_so_far_and_no_further(serve: Serve, fetcher: Fetch) -> None:
    async def stairs(request: web.Request) -> web.StreamResponse:
        left = int(request.path[1:])
        return web.Response(status=307, headers={"location": f"/{left - 1}"}) if left else await hello(request)

    there = await serve(stairs)
    found = await fetcher().get(there.url("/3"))
    assert found is not None
    assert found.validators == Validators(there.url("/0"), etag='"1"')
    assert "redirected" in await refused(fetcher(), there.url("/4"))


async def test_what_is_too_large_is_not_read_to_its_end(serve: Serve, fetcher: Fetch) -> None:
    async def told(request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(1001))

    async def chunked(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        reply.enable_chunked_encoding()
        await reply.prepare(request)
        with suppress(ConnectionError):
            while True:  # until the reader goes
                await reply.write(bytes(500))
        return reply

    for handler in (told, chunked):
        assert "1000 bytes" in await refused(fetcher(), (await serve(handler)).url("/"))


async def test_who_is_slow_is_given_up(serve: Serve, fetcher: Fetch) -> None:
    for_ever = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        await for_ever.wait()
        return web.Response()

    async def half(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-length": "10"})
        await reply.prepare(request)
        await reply.write(b"hel")
        await for_ever.wait()
        return reply

    hurried = FetchRules(allowed=True, schemes=("http",), private=True, timeout_seconds=0.1)
    for handler in (silent, half):
        await refused(fetcher(hurried), (await serve(handler)).url("/"))
    for_ever.set()


async def test_bodies_that_are_not_what_they_seem(serve: Serve, fetcher: Fetch) -> None:
    async def packed(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x", headers={"content-encoding": "gzip"})

    async def empty(request: web.Request) -> web.StreamResponse:
        return web.Response()

    async def short(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-length": "10"})
        await reply.prepare(request)
        await reply.write(b"hel")
        assert request.transport is not None
        request.transport.close()
        return reply

    async def partial(request: web.Request) -> web.StreamResponse:
        return web.Response(status=206, body=b"hel")

    async def unchanged(request: web.Request) -> web.StreamResponse:
        return web.Response(status=304)

    async def missing(request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotFound

    for handler in (packed, empty, short, partial, unchanged, missing):
        await refused(fetcher(), (await serve(handler)).url("/"))


async def test_no_cookies_and_no_proxy_of_the_environment(
    serve: Serve, fetcher: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cookie(request: web.Request) -> web.StreamResponse:
        reply = web.Response(body=b"hello")
        reply.set_cookie("a", "b")
        return reply

    there, elsewhere = await serve(cookie), await serve(hello)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, elsewhere.url("/"))
    one = fetcher()
    for _ in range(2):
        assert await one.get(there.url("/")) is not None
    assert not elsewhere.seen
    assert not any("cookie" in request.headers for request in there.seen)


async def test_asking_whether_it_changed(serve: Serve, fetcher: Fetch) -> None:
    async def kept(request: web.Request) -> web.StreamResponse:
        if request.headers.get("if-none-match") == '"1"':
            return web.Response(status=304)
        return await hello(request)

    there, one = await serve(kept), fetcher()
    found = await one.get(there.url("/"))
    assert found is not None
    assert await one.get(there.url("/"), found.validators) is None
    assert await one.get(there.url("/"), Validators(there.url("/"), etag='"2"')) == found
    # What another address gave is told to nobody else.
    assert await one.get(there.url("/"), Validators(there.url("/other"), etag='"1"')) == found
    assert [request.headers.get("if-none-match") for request in there.seen] == [None, '"1"', '"2"', None]


OLD, NEW, DATE = "Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 10:59:59 GMT", "Mon, 30 Nov 2026 11:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "etag", "modified"),
    [
        ({"etag": '"a"'}, '"a"', ""),
        ({"etag": '"a"', "last-modified": OLD, "date": DATE}, '"a"', ""),
        ({"etag": 'W/"a"', "last-modified": OLD, "date": DATE}, "", OLD),
        ({"last-modified": OLD, "date": DATE}, "", OLD),
        ({"last-modified": NEW, "date": DATE}, None, None),  # it may change once more in that second
        ({"last-modified": OLD}, None, None),
        ({"last-modified": "yesterday", "date": DATE}, None, None),
        ({"etag": 'W/"a"'}, None, None),
        ({"etag": "a"}, None, None),
        ({"etag": '""'}, None, None),
        ({"etag": '"a"', "cache-control": "max-age=9, No-Store"}, None, None),
        ({}, None, None),
    ],
)
def test_only_what_tells_every_change_is_relied_on(
    headers: dict[str, str], etag: str | None, modified: str | None
) -> None:
    found = fetch._validators("u", headers)
    assert found == (None if etag is None else Validators("u", etag, modified or ""))
