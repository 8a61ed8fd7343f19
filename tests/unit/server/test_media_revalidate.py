"""Media by address: keyed by what it shows now, asked about each time, sent upstream as the bytes that were seen."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.server.media_world import Origin, asked, closed, origin, pixels, proxy, saved

from mmcache import Cache
from mmcache.server.config import FetchRules
from mmcache.server.exchange import Proxy
from mmcache.server.media.parts import Identified, Unknown, identified

RULES = FetchRules(allowed=True, schemes=("http",), private=True, largest_bytes=100_000, timeout_seconds=30)
PNG, OTHER = saved(pixels()), saved(pixels(1))


class Files:
    """What the origin has, and how it behaves."""

    def __init__(self) -> None:
        self.body, self.mime, self.headers = PNG, "image/png", {"etag": '"1"'}
        self.status = 200

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if "etag" in self.headers and request.headers.get("if-none-match") == self.headers["etag"]:
            return web.Response(status=304)
        return web.Response(status=self.status, body=self.body, content_type=self.mime, headers=self.headers)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
async def there(files: Files) -> AsyncIterator[Origin]:
    one = await origin(files)
    yield one
    await one.close()


@pytest.fixture
async def world() -> AsyncIterator[Proxy]:
    with Cache(memory="16MiB") as cache:
        one = proxy(cache, fetch=RULES)
        yield one
        await closed(one)


def part(there: Origin, path: str = "/a.png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": there.url(path), "detail": "low"}, "uuid": "x"}


def inline(raw: bytes = PNG, mime: str = "image/png") -> dict[str, Any]:
    url = f"data:{mime};base64,{base64.b64encode(raw).decode()}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


async def known(one: dict[str, Any], world: Proxy, **changes: Any) -> Identified:
    found = await identified(one, asked(**changes), world)
    assert isinstance(found, Identified), found
    return found


def conditions(there: Origin) -> list[str | None]:
    return [request.headers.get("if-none-match") for request in there.seen]


async def test_it_is_what_it_shows_and_goes_upstream_as_that(there: Origin, world: Proxy) -> None:
    found = await known(part(there), world)
    assert found.identity == (await known(inline(), world)).identity
    assert found.part == inline()
    assert found.rewritten
    assert (found.raw, found.kind) == (PNG, "image")


async def test_it_is_asked_about_each_time_and_comes_again_only_when_it_changed(
    there: Origin, files: Files, world: Proxy
) -> None:
    first = await known(part(there), world)
    assert await known(part(there), world) == first
    files.body, files.headers = OTHER, {"etag": '"2"'}
    changed = await known(part(there), world)
    assert changed.identity == (await known(inline(OTHER), world)).identity != first.identity
    assert changed.part == inline(OTHER)
    assert await known(part(there), world) == changed
    assert conditions(there) == [None, '"1"', '"1"', '"2"']


async def test_one_tenant_learns_nothing_of_anothers(there: Origin, world: Proxy) -> None:
    await known(part(there), world)
    await known(part(there), world, tenant="bob")
    assert conditions(there) == [None, None]


async def test_directives(there: Origin, world: Proxy) -> None:
    await known(part(there), world, no_store=True)  # neither kept
    await known(part(there), world)
    await known(part(there), world, no_store=True)  # nor used
    await known(part(there), world, no_cache=True)
    await known(part(there), world)
    assert conditions(there) == [None, None, None, None, '"1"']


async def test_without_a_validator_it_is_fetched_each_time(there: Origin, files: Files, world: Proxy) -> None:
    for files.headers in ({}, {"etag": 'W/"1"'}, {"etag": '"1"', "cache-control": "no-store"}):
        for _ in range(2):
            await known(part(there), world)
    assert conditions(there) == [None] * 6


async def test_after_a_restart_it_is_still_known(there: Origin, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with Cache(tmp_path, memory="16MiB") as cache:
            world = proxy(cache, fetch=RULES)
            found.append(await known(part(there), world))
            await closed(world)
    assert found[0] == found[1]
    assert conditions(there) == [None, '"1"']


@pytest.mark.parametrize("mode", ["off", "shadow"])
async def test_a_cache_that_serves_nothing_changes_nothing(mode: Any, there: Origin) -> None:
    with Cache(memory="16MiB", mode=mode) as cache:
        world = proxy(cache, fetch=RULES)
        assert [(await known(part(there), world)).raw for _ in range(2)] == [PNG, PNG]
        await closed(world)
    assert conditions(there) == [None, None]


async def test_a_broken_record_is_no_record(there: Origin, world: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await known(part(there), world)
    records: list[Any] = [b"x", {"url": "u"}, {"url": 1, "etag": "", "modified": "", "mime": "", "data": b"1"}, []]
    for wrong in records:

        async def get(key: Any, default: Any = None, wrong: Any = wrong) -> Any:
            return wrong

        monkeypatch.setattr(world.cache.a, "get", get)
        assert (await known(part(there), world)).raw == PNG
    assert conditions(there) == [None] * 5


async def test_a_closed_cache_costs_a_request_and_nothing_else(there: Origin, world: Proxy) -> None:
    world.cache.close()
    assert (await known(part(there), world)).raw == PNG


@pytest.mark.parametrize(
    ("kind", "mime", "body", "said"),
    [
        ("image_url", "application/octet-stream", PNG, "image/png"),
        ("image_url", "text/plain", PNG, "image/png"),
        ("image_url", "image/avif", b"\0\0\0 ftypavif", "image/avif"),
        ("image_url", "text/html", b"<html>", None),
        ("image_url", "video/mp4", b"mp4", None),
        ("audio_url", "audio/mpeg", b"ID3", "audio/mpeg"),
        ("audio_url", "application/octet-stream", b"ID3", None),
        ("video_url", "video/mp4", b"mp4", "video/mp4"),
        ("video_url", "video/jpeg", b"\xff\xd8\xff", None),
    ],
)
async def test_what_it_is_said_to_be(
    kind: str, mime: str, body: bytes, said: str | None, there: Origin, files: Files, world: Proxy
) -> None:
    files.mime, files.body = mime, body
    found = await identified({"type": kind, kind: {"url": there.url("/")}}, asked(), world)
    if said is None:
        assert found == Unknown("remote-media")
    else:
        assert isinstance(found, Identified)
        assert found.part[kind]["url"] == f"data:{said};base64,{base64.b64encode(body).decode()}"


async def test_whatever_goes_wrong_the_request_is_passed_on(there: Origin, files: Files, world: Proxy) -> None:
    files.status = 500
    assert await identified(part(there), asked(), world) == Unknown("remote-media")
    files.status, files.body = 200, bytes(200_000)
    assert await identified(part(there), asked(), world) == Unknown("remote-media")
    files.body = PNG
    assert await identified(part(there), asked(largest_body_bytes=len(PNG)), world) == Unknown("remote-media")
    assert await identified(part(there), asked(largest_body_bytes=2 * len(PNG)), world) != Unknown("remote-media")


async def test_nobody_is_asked_unless_the_rules_allow_it(there: Origin) -> None:
    with Cache(memory="1MiB") as cache:
        for rules in (FetchRules(), FetchRules(allowed=True), FetchRules(allowed=True, schemes=("http",))):
            world = proxy(cache, fetch=rules)
            assert await identified(part(there), asked(), world) == Unknown("remote-media")
            await closed(world)
    assert not there.seen
