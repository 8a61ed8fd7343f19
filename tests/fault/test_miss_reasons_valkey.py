"""What a real server does to a lookup: its reason, and the server's own words in the detail and in the span."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.telemetry.recorded import Recorded

from mmcache import Cache
from mmcache.lab import servers
from mmcache.model.errors import AssetError
from mmcache.settings import SharedSettings

pytestmark = pytest.mark.slow

USERS = {"reader": "on >hush-hush ~mm:* +@all -get -getrange -eval -evalsha -fcall -mget -strlen"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    try:
        with servers.server(tmp_path, users=USERS) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


def shared(server: servers.Server, user: str = "", timeout: float = 30.0) -> Cache:
    url = server.url.replace("://", f"://{user}@") if user else server.url
    return Cache(shared=SharedSettings(url, prefix="mm:", timeout_seconds=timeout), secret=bytes(32))


def missed(cache: Cache, text: str = "a cat") -> tuple[str, str]:
    """Reason and detail of the last lookup's span."""
    with Recorded(cache) as recorded:
        cache.get(cache.key(text, modality="text", signature="v1"))
        (told,) = recorded.told()
        spans = "".join(span.to_json() for span in recorded.all())
    assert "hush-hush" not in spans
    return told["cache.miss.reason"], told.get("cache.miss.detail", "")


def test_a_user_without_the_right_is_denied_and_told_by_whom(server: servers.Server) -> None:
    with shared(server, "reader:hush-hush") as cache:
        reason, detail = missed(cache)
    assert reason == "denied"
    assert detail.startswith("valkey: ")
    assert "NOPERM" in detail


def test_a_server_that_does_not_answer_in_time_is_late(server: servers.Server) -> None:
    with shared(server, timeout=1.0) as cache:
        until = time.monotonic() + 60
        while missed(cache)[0] != "absent":  # a busy machine is late itself
            assert time.monotonic() < until
        server.pause()
        reason, detail = missed(cache, "a dog")
        server.resume()
    assert reason == "timeout"
    assert detail.startswith("valkey")


def test_a_server_that_is_gone(server: servers.Server) -> None:
    with shared(server) as cache:
        missed(cache)
        server.kill()
        reason, detail = missed(cache)
    assert reason == "tier-down"
    assert detail.startswith("valkey")
