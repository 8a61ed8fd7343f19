"""The memory tier keeps the contract, alone and behind every wrapper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mmcache.model.frame import Frame
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, TierContract
from mmcache.tiers.base import Tier
from mmcache.tiers.faults import FaultyTier, scripted
from mmcache.tiers.memory import MemoryTier


@dataclass
class Whole:
    """A frame thawed to its payload."""

    frame: Frame
    constant: bool = True

    @property
    def value(self) -> Callable[[], object]:
        return lambda: bytes(self.frame.payload)


def memory(clock: FakeClock) -> MemoryTier:
    return MemoryTier(MemorySettings(limit_bytes=8 << 20), LRU(), Whole, clock=clock)


class TestMemoryTier(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        return memory(clock)


class TestFaultyTierWithoutFaults(TierContract):
    def make_tier(self, clock: FakeClock, folder: Path) -> Tier:
        return FaultyTier(memory(clock), scripted([]))
