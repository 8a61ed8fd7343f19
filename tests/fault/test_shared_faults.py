"""What befalls a shared tier costs misses and refused puts, each with its reason: never an error or a wrong value.

Every trial is one of real processes, as the table `faults` runs it; nothing here asserts how long anything took.
"""

from __future__ import annotations

import pytest

from mmcache.lab.faults_all import FAULTS
from mmcache.lab.faults_trial import Fault, Trial, try_out
from mmcache.model.errors import AssetError

DOWN = {"tier-down", "timeout", "stale-lease"}
SOON = {"absent", "stale-lease"}
"""Why a lookup misses where all is well: it was invalidated, or its cache was just opened and has heard no news yet."""
MISSED = {
    "full": {"denied"},
    "not-permitted": {"denied"},
    "clock-far-ahead": {"abstained"},
    "clock-back": {"abstained"},
}
"""Further reasons that misses may have while the fault lasts, besides those of a node that is down: to who waits a
quarter of a second, every node of a busy machine is that now and then."""
MUST = {
    "server-gone": {"tier-down"}, "server-late": {"tier-down"}, "wrong-password": {"tier-down"},
    "password-changed": {"tier-down"}, "not-permitted": {"denied"}, "wrong-authority": {"tier-down"},
    "wrong-name": {"tier-down"}, "no-tls": {"tier-down"}, "node-silent": {"timeout", "tier-down"},
    "cut-off": {"timeout", "tier-down"}, "slow-cable": {"timeout", "tier-down"},
}  # fmt: skip
"""Reasons that some must have."""
TOLD = {
    "node-silent", "cut-off", "slow-cable", "resharding", "full", "clock-ahead", "password-changed", "not-permitted",
    "wrong-authority", "wrong-name",
}  # fmt: skip
"""Faults in which every put that is lost was refused, and counted. Where a replica takes over, what the dead primary
had confirmed but not yet sent on is lost too, and nobody can tell."""
SHORT = {"server-gone": 0.5, "full": 0.5, "not-permitted": 0.5, "node-killed": 0.5, "cut-off": 0.5}
"""Seconds that they last in a quick run."""


def tried(fault: Fault, lasts: float | None = None) -> Trial:
    try:
        return try_out(fault, 0, lasts)
    except AssetError as missing:
        pytest.skip(str(missing))


def judge(trial: Trial) -> None:
    name = trial.fault.name
    for phase in trial.phases.values():
        assert not phase.errors
        assert phase.wrong == phase.stale == 0
        assert phase.hits + phase.missed.total() == phase.lookups
    assert trial.most_timeouts <= 1
    reasons = set(trial.during.missed)
    assert reasons <= MISSED.get(name, set()) | DOWN | SOON
    assert reasons >= MUST.get(name, set())
    if name != "no-tls":
        assert trial.healed_seconds is not None
        assert trial.agreed_seconds is not None
        assert trial.after.hits == trial.after.lookups
        assert set(trial.written.missed) <= SOON
    if name in TOLD:
        assert trial.written.hits + trial.writer.refused.total() >= trial.written.lookups


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in SHORT], ids=lambda fault: fault.name)
def test_callers_see_misses_and_nothing_worse(fault: Fault) -> None:
    judge(tried(fault, SHORT[fault.name]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_whatever_befalls_it(fault: Fault, seed: int) -> None:
    try:
        judge(try_out(fault, seed))
    except AssetError as missing:
        pytest.skip(str(missing))
