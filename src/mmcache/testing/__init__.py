"""The kit for authors of plug-ins: contract suites, Hypothesis strategies, a fake clock, frames to play with.

Needs `pip install mmcache[testing]`. A plug-in's tests are one subclass:

    from mmcache.testing import PolicyContract

    class TestMine(PolicyContract):
        def make_policy(self):
            return MyPolicy()
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcache.testing.clock import FakeClock
    from mmcache.testing.frames import make_frame, make_key
    from mmcache.testing.policy_contract import PolicyContract
    from mmcache.testing.tier_contract import TierContract

_HOMES = {
    "FakeClock": "clock",
    "PolicyContract": "policy_contract",
    "TierContract": "tier_contract",
    "make_frame": "frames",
    "make_key": "frames",
}

__all__ = ["FakeClock", "PolicyContract", "TierContract", "make_frame", "make_key"]

if (pytest := sys.modules.get("pytest")) is not None:
    # So that a failing contract shows the values that differ, as a test of your own would.
    pytest.register_assert_rewrite(*{f"{__name__}.{home}" for home in _HOMES.values() if home.endswith("_contract")})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
