"""The disk tier does what every tier must do."""

from __future__ import annotations

from pathlib import Path

from mmcache.settings import DiskSettings
from mmcache.testing.clock import FakeClock
from mmcache.testing.tier_contract import TierContract
from mmcache.tiers.disk import DiskTier

SMALL = DiskSettings(limit_bytes=8 << 20, segment_bytes=1 << 20, index_map_bytes=1 << 18, free_space_floor=0)


class TestDiskTier(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> DiskTier:
        return DiskTier(folder / "cache", SMALL, clock=clock)
