"""Every built-in policy keeps the contract."""

from __future__ import annotations

from mmcache.policies.base import Policy
from mmcache.policies.lru import LRU
from mmcache.testing import PolicyContract


class TestLRU(PolicyContract):
    def make_policy(self) -> Policy:
        return LRU()
