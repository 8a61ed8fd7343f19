"""What was replaced or invalidated is never served again, though the server was deaf, forgot it, or was not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache
from mmcache.lab.servers import Server, choose, server
from mmcache.lab.servers.process import until
from mmcache.model.errors import AssetError
from mmcache.model.key import Key
from mmcache.settings import SharedSettings

Open = Callable[..., Cache]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    try:
        choose()
    except AssetError as missing:
        pytest.skip(str(missing))
    with server(tmp_path / "server") as running:
        yield running


@pytest.fixture
def host(valkey: Server) -> Iterator[Open]:
    """`seconds`: how long it waits for its server."""

    def open_(seconds: float = 20.0, **more: Any) -> Cache:
        settings = SharedSettings(valkey.url, timeout_seconds=seconds, rest_seconds=0.05)
        return opened.enter_context(Cache(shared=settings, secret=b"s" * 32, **more))

    with ExitStack() as opened:
        yield open_


def key(cache: Cache) -> Key:
    return cache.key("k", modality="text", signature="s")


def serves(cache: Cache) -> bool:
    """Whether its server does, by asking for something else."""
    assert cache.below.shared is not None
    cache.get(cache.key("another", modality="text", signature="s"))
    return cache.below.shared.client.status()["breakers_open"] == 0


def test_what_a_deaf_server_did_not_drop_stays_owed_though_it_was_computed_anew(valkey: Server, host: Open) -> None:
    first, cache = host(memory=1), host(0.2, memory=1)
    first.put(key(first), "old")
    first.flush()
    assert until(lambda: cache.get(key(cache)) == "old")  # a busy machine is late
    valkey.pause()
    cache.invalidate(key(cache))
    assert cache.get_or_compute(key(cache), lambda: "new") == "new"
    cache.flush()
    valkey.resume()
    assert until(lambda: serves(cache))
    assert cache.get(key(cache)) != "old"
    assert host(memory=1).get(key(cache)) != "old"


def test_what_the_server_has_lost_is_replaced_in_other_hosts_memories_too(valkey: Server, host: Open) -> None:
    one, other = host(memory=1), host()
    one.put(key(one), "old")
    one.flush()
    assert other.get(key(other)) == "old"
    assert one.below.shared is not None
    (name,) = (name for name in valkey.ask("KEYS", "*") if valkey.ask("TYPE", name) == "string" and len(name) > 70)
    valkey.ask("DEL", name)
    one.put(key(one), "new")
    one.flush()
    assert until(lambda: other.get(key(other)) == "new")


def test_a_cache_opens_while_its_server_is_down_and_says_so(valkey: Server, host: Open) -> None:
    valkey.kill()
    cache = host()
    assert cache.get_or_compute(key(cache), lambda: "new") == "new"
    assert cache.get(key(cache)) == "new"
    assert any("valkey" in str(event) for event in cache.events.recent())
    valkey.restart()
    assert until(lambda: serves(cache))
