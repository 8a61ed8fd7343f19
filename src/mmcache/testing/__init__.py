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
    from mmcache.testing.calibration_contract import CalibrationContract
    from mmcache.testing.clock import FakeClock
    from mmcache.testing.codec_contract import CodecContract
    from mmcache.testing.decider_contracts import AdmissionContract, LifetimeContract, ReferencesContract
    from mmcache.testing.frames import WholeThaw, make_frame, make_key
    from mmcache.testing.policy_contract import PolicyContract
    from mmcache.testing.tier_contract import TierContract

__all__ = [
    "AdmissionContract",
    "CalibrationContract",
    "CodecContract",
    "FakeClock",
    "LifetimeContract",
    "PolicyContract",
    "ReferencesContract",
    "TierContract",
    "WholeThaw",
    "make_frame",
    "make_key",
]

_HOMES = {
    "AdmissionContract": "decider_contracts",
    "CalibrationContract": "calibration_contract",
    "CodecContract": "codec_contract",
    "FakeClock": "clock",
    "LifetimeContract": "decider_contracts",
    "PolicyContract": "policy_contract",
    "ReferencesContract": "decider_contracts",
    "TierContract": "tier_contract",
    "WholeThaw": "frames",
    "make_frame": "frames",
    "make_key": "frames",
}

if (pytest := sys.modules.get("pytest")) is not None:
    # So that a failing contract shows the values that differ, as a test of your own would.
    pytest.register_assert_rewrite(*{f"{__name__}.{home}" for home in _HOMES.values() if "contract" in home})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
