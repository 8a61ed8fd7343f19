"""Commands that are done twice, or that another host's come between: no older value outlives, no piece is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mmcache.lab import servers
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.settings import SharedSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import Client, Request
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.scripts import COMMIT, SEIZE

KEY = make_key(1)
BLOCK = Names("mmcache:").block(KEY)


@pytest.fixture(scope="module", params=["newest", "redis-6"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    try:
        binary = servers.choose() if request.param == "newest" else servers.choose("redis", 6)
        with servers.server(tmp_path_factory.mktemp("valkey"), binary=binary) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


class Around(Client):
    """Does something when a put is to be committed."""

    around: Callable[[Callable[[], list[Any]]], list[Any]] = staticmethod(lambda ask: ask())

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        if any(one.words[:2] == COMMIT.words([])[:2] for one in requests):
            return self.around(lambda: super(Around, self).ask(requests))
        return super().ask(requests)


@pytest.fixture
def tier(server: servers.Server) -> Iterator[ValkeyTier]:
    server.ask("FLUSHALL")
    settings = SharedSettings(server.url, timeout_seconds=30)
    client = Around(settings, clock=SystemClock())
    opened = ValkeyTier(settings, client=client, heartbeat=False)
    yield opened
    opened.close()
    client.close()


@pytest.mark.parametrize("size", [10, 30_000, 600_000])
def test_a_put_that_is_overtaken_by_one_that_never_comes_leaves_no_older_value(tier: ValkeyTier, size: int) -> None:
    def seized(ask: Callable[[], list[Any]]) -> list[Any]:
        assert tier.client.ask([Request(BLOCK[0], SEIZE.words(BLOCK, (b"another", 1000, 60_000)))]) == [1]
        return ask()

    assert tier.put([make_frame(KEY, b"older" * size)], [None]) == [None]
    assert isinstance(tier.client, Around)
    tier.client.around = seized
    assert tier.put([make_frame(KEY, b"newer" * size)], [None]) == [RefuseReason.INVALIDATED]
    assert tier.get([KEY]) == [MissReason.ABSENT]
    tier.drop([KEY])
    assert [name for name in server_keys(tier) if b"clock" not in name] == []


@pytest.mark.parametrize("size", [10, 30_000, 600_000])
def test_a_put_that_is_overtaken_by_one_that_is_stored_leaves_that(
    tier: ValkeyTier, server: servers.Server, size: int
) -> None:
    other = ValkeyTier.open(server.url, timeout_seconds=30, heartbeat=False)

    def stored(ask: Callable[[], list[Any]]) -> list[Any]:
        assert other.put([make_frame(KEY, b"theirs" * size)], [None]) == [None]
        return ask()

    assert isinstance(tier.client, Around)
    tier.client.around = stored
    assert tier.put([make_frame(KEY, b"ours" * size)], [None]) == [RefuseReason.INVALIDATED]
    (found,) = tier.get([KEY])
    assert isinstance(found, Found)
    assert bytes(found.frame.payload) == b"theirs" * size
    other.close()


@pytest.mark.parametrize("deadline", [None, 1e9])
def test_a_block_in_pieces_that_is_stored_twice_keeps_its_pieces(tier: ValkeyTier, deadline: float | None) -> None:
    def twice(ask: Callable[[], list[Any]]) -> list[Any]:
        ask()
        return ask()

    assert isinstance(tier.client, Around)
    tier.client.around = twice
    assert tier.put([make_frame(KEY, b"large" * 200_000)], [deadline]) == [None]
    (found,) = tier.get([KEY])
    assert isinstance(found, Found)
    pieces = [name for name in server_keys(tier) if b":c:" in name]
    assert len(pieces) == 2
    lives = tier.client.ask([Request(name, ("PTTL", name)) for name in pieces])
    assert all(left == -1 if deadline is None else left > 120_000 for left in lives)


@pytest.mark.parametrize("deadline", [-math.inf, math.nan, -1e300, 0.0, 1e300, math.inf, 5e-324])
def test_whatever_a_deadline_is_nothing_is_served_beyond_it(tier: ValkeyTier, deadline: float) -> None:
    assert tier.put([make_frame(KEY)], [deadline]) == [None]
    (found,) = tier.get([KEY])
    assert isinstance(found, Found) == (deadline > 1e9)


def server_keys(tier: ValkeyTier) -> list[bytes]:
    (reply,) = tier.client.ask([Request(None, ("KEYS", "*"))])
    return list(reply)
