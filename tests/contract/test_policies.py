"""Every built-in policy keeps the contract."""

from __future__ import annotations

from mmcache import plugins
from mmcache.policies.auto import Auto
from mmcache.policies.auto_python import PythonCore
from mmcache.policies.base import Policy
from mmcache.policies.entropy import EntropyLFU
from mmcache.policies.freshness import HeatFreshness
from mmcache.policies.heat import HeatWindow
from mmcache.policies.lru import LRU
from mmcache.testing import PolicyContract


class TestLRU(PolicyContract):
    def make_policy(self) -> Policy:
        return LRU()


class TestAuto(PolicyContract):
    def make_policy(self) -> Policy:
        return Auto()


class TestAutoInPlainPython(PolicyContract):
    def make_policy(self) -> Policy:
        return PythonCore()


class TestHeatWindow(PolicyContract):
    def make_policy(self) -> Policy:
        return HeatWindow()


class TestHeatWindowShorterThanTheCache(PolicyContract):
    def make_policy(self) -> Policy:
        return HeatWindow(window=7, threshold=3)


class TestEntropyLFU(PolicyContract):
    def make_policy(self) -> Policy:
        return EntropyLFU()


class TestHeatFreshness(PolicyContract):
    def make_policy(self) -> Policy:
        return HeatFreshness()


class TestHeatFreshnessOfAShortWindow(PolicyContract):
    def make_policy(self) -> Policy:
        return HeatFreshness(seconds=5.0, events=7)


def test_every_registered_policy_is_here() -> None:
    tested = {type(suite().make_policy()) for suite in PolicyContract.__subclasses__() if suite.__module__ == __name__}
    assert {plugins.load("policies", name) for name in plugins.names("policies")} <= tested
