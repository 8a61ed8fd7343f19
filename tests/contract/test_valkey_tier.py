"""The Valkey tier does what every tier must do, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.lab import servers
from mmcache.model.errors import AssetError
from mmcache.testing.clock import FakeClock
from mmcache.testing.tier_contract import TierContract
from mmcache.tiers.valkey import ValkeyTier

pytest.importorskip("redis", reason="needs mmcache[valkey]")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as server:
            yield server.port
    except AssetError as missing:
        pytest.skip(str(missing))


class TestValkeyTier(TierContract):
    @pytest.fixture(autouse=True)
    def server(self, port: int) -> None:
        self.port = port

    def make_tier(self, clock: FakeClock, folder: Path) -> ValkeyTier:
        return ValkeyTier(port=self.port, prefix=f"{folder.name}[*]:", clock=clock, timeout_seconds=20)
