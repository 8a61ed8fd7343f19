"""Fair shares keep the policy contract, whatever policy each tenant has."""

from __future__ import annotations

from mmcache.policies.base import Policy
from mmcache.policies.fair import FairShare
from mmcache.policies.heat import HeatWindow
from mmcache.policies.lru import LRU
from mmcache.settings import Tenant
from mmcache.testing import PolicyContract


class TestFairShareOfLRU(PolicyContract):
    def make_policy(self) -> Policy:
        return FairShare(LRU, {})


class TestFairShareOfHeat(PolicyContract):
    def make_policy(self) -> Policy:
        return FairShare(HeatWindow, {"default": Tenant("batch")})
