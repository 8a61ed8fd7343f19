"""The memory tier keeps the contract, alone and behind every wrapper."""

from __future__ import annotations

from pathlib import Path

from mmcache.policies.heat import HeatWindow
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, TierContract, WholeThaw
from mmcache.tiers.audit import AuditTier
from mmcache.tiers.base import Tier
from mmcache.tiers.faults import FaultyTier, scripted
from mmcache.tiers.latency import LatencyTier
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.write_behind import WriteBehind

LIMITS = MemorySettings(limit_bytes=8 << 20)


class TestMemoryTier(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        return MemoryTier(LIMITS, LRU(), WholeThaw, clock=clock)


class TestWriteBehind(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        return WriteBehind(MemoryTier(LIMITS, LRU(), WholeThaw, clock=clock), backlog_bytes=1 << 20, clock=clock)


class TestEveryWrapperThatChangesNothing(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        tier: Tier = MemoryTier(LIMITS, HeatWindow(), WholeThaw, clock=clock)
        return AuditTier(LatencyTier(FaultyTier(tier, scripted([])), lambda seconds: None))
