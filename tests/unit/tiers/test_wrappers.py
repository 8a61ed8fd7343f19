"""Tiers around tiers: each fault does what it says, latency is what was asked, the audit sees every broken promise."""

from __future__ import annotations

import pytest

from mmcache.model.errors import TierError
from mmcache.model.event import MissReason
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw, make_frame, make_key
from mmcache.tiers.audit import AuditTier
from mmcache.tiers.base import Found, Tier
from mmcache.tiers.faults import Fault, FaultyTier, scripted, seeded
from mmcache.tiers.latency import LatencyTier
from mmcache.tiers.memory import MemoryTier

ONE, TWO = make_frame(make_key(1), b"one"), make_frame(make_key(2), b"two")
KEYS = [ONE.key, TWO.key]


def memory() -> Tier:
    tier = MemoryTier(MemorySettings(limit_bytes=1 << 20), LRU(), WholeThaw, clock=FakeClock())
    tier.put([ONE, TWO], [None, None])
    return tier


def faulty(fault: Fault, operation: str) -> FaultyTier:
    return FaultyTier(memory(), scripted([fault], [operation]))


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST_REPLY])
def test_an_error_comes_before_the_work_a_lost_reply_after_it(fault: Fault) -> None:
    tier = faulty(fault, "drop")
    with pytest.raises(TierError, match="injected"):
        tier.drop([ONE.key])
    assert (tier.get([ONE.key]) == [MissReason.ABSENT]) is (fault is Fault.LOST_REPLY)
    assert tier.counts == {("drop", fault): 1}


def test_corrupt_flips_one_bit_and_leaves_the_store_whole() -> None:
    tier = faulty(Fault.CORRUPT, "get")
    bad, good = tier.get([ONE.key])[0], tier.get([ONE.key])[0]
    assert isinstance(bad, Found)
    assert isinstance(good, Found)
    assert not bad.frame.intact()
    assert good.frame.intact()
    flipped = int.from_bytes(bad.frame.payload) ^ int.from_bytes(good.frame.payload)
    assert flipped.bit_count() == 1


def test_wrong_key_answers_with_another_frame() -> None:
    tier = FaultyTier(memory(), scripted([Fault.WRONG_KEY], ["get"]))
    tier.put([ONE, TWO], [None, None])
    wrong = tier.get(KEYS)
    assert [isinstance(found, Found) and found.frame.key for found in wrong] == [TWO.key, ONE.key]


def test_short_loses_one_answer() -> None:
    assert len(faulty(Fault.SHORT, "get").get(KEYS)) == 1
    assert len(faulty(Fault.SHORT, "put").put([ONE, TWO], [None, None])) == 1


def test_a_lost_write_is_accepted_and_gone() -> None:
    tier = faulty(Fault.LOST_WRITE, "put")
    assert tier.put([ONE], [None]) == [None]
    assert tier.get(KEYS)[0] is MissReason.ABSENT
    assert isinstance(tier.get(KEYS)[1], Found)


def test_hanging_waits_and_then_works() -> None:
    waits: list[int] = []
    tier = FaultyTier(memory(), scripted([None, Fault.HANG], ["get"]), wait=lambda: waits.append(1))
    for _ in range(3):
        assert all(isinstance(found, Found) for found in tier.get(KEYS))
    assert waits == [1]


def test_a_seeded_plan_repeats_itself_and_keeps_its_rates() -> None:
    rates = {Fault.ERROR: 0.1, Fault.HANG: 0.2}
    one, two = seeded(5, rates), seeded(5, rates)
    drawn = [one("get") for _ in range(5000)]
    assert drawn == [two("get") for _ in range(5000)]
    assert one("close") is None
    assert drawn.count(Fault.ERROR) == pytest.approx(500, abs=100)
    assert drawn.count(Fault.HANG) == pytest.approx(1000, abs=150)


def test_latency_is_virtual() -> None:
    clock = FakeClock()
    tier = LatencyTier(memory(), clock.advance, per_call=1.0, per_byte=0.25)
    start = clock.monotonic()
    tier.get(KEYS)
    assert clock.monotonic() - start == 1.0 + 6 * 0.25
    tier.put([ONE], [None])
    assert clock.monotonic() - start == 2 * 1.0 + 9 * 0.25
    tier.drop([ONE.key])
    tier.flush()
    list(tier.scan())
    assert clock.monotonic() - start == 5 * 1.0 + 9 * 0.25


def test_an_honest_tier_has_no_violations() -> None:
    tier = AuditTier(memory())
    tier.get([*KEYS, make_key(3)])
    tier.put([ONE], [None])
    tier.drop([ONE.key, ONE.key])
    list(tier.scan())
    tier.close()
    assert not tier.violations
    assert [call.operation for call in tier.calls] == ["get", "put", "drop", "scan", "close"]
    assert tier.calls[0].outcome == ("found", "found", "absent")
    assert tier.count("put") == 1


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (Fault.CORRUPT, "fails its checksum"),
        (Fault.WRONG_KEY, "gave the frame of"),
        (Fault.SHORT, "2 keys gave 1 answers"),
    ],
)
def test_the_audit_sees_every_lie(fault: Fault, complaint: str) -> None:
    liar = FaultyTier(memory(), scripted([fault], ["get"]))
    liar.put([ONE, TWO], [None, None])
    tier = AuditTier(liar)
    tier.get(KEYS)
    assert any(complaint in violation for violation in tier.violations)
