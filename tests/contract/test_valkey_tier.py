"""The Valkey tier does what every tier must do, against real servers: one, and a cluster; whole and in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.lab import servers
from mmcache.model.errors import AssetError
from mmcache.testing.clock import FakeClock
from mmcache.testing.tier_contract import TierContract
from mmcache.tiers.valkey import ValkeyTier

SERVERS: dict[str, tuple[str | None, int | None]] = {"newest": (None, None), "redis-6": ("redis", 6)}


@pytest.fixture(scope="module", params=list(SERVERS))
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        binary = servers.choose(*SERVERS[request.param])
        with servers.server(tmp_path_factory.mktemp("valkey"), binary=binary) as server:
            yield server.url
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with servers.cluster(tmp_path_factory.mktemp("cluster"), primaries=3, replicas=0) as cluster:
            yield cluster.url
    except AssetError as missing:
        pytest.skip(str(missing))


class Shared(TierContract):
    url: str
    chunk_bytes = 512 << 10

    def make_tier(self, clock: FakeClock, folder: Path) -> ValkeyTier:
        return ValkeyTier.open(
            self.url, prefix=f"{folder.name}[*]:", clock=clock, timeout_seconds=20, chunk_bytes=self.chunk_bytes
        )


class TestOneServer(Shared):
    @pytest.fixture(autouse=True)
    def server(self, one: str) -> None:
        self.url = one


class TestOneServerInPieces(TestOneServer):
    chunk_bytes = 33


class TestCluster(Shared):
    @pytest.fixture(autouse=True)
    def server(self, three: str) -> None:
        self.url = three


class TestClusterInPieces(TestCluster):
    chunk_bytes = 33
