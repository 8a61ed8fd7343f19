"""Three queues share the work by weighted bytes."""

from __future__ import annotations

from collections import Counter

import pytest

from mmcache.prefetch.media.schedule import MOST, WEIGHTS, Schedule
from mmcache.prefetch.media.task import KINDS, Kind


def served(schedule: Schedule[int], count: int) -> Counter[Kind]:
    taken = (schedule.take() for _ in range(count))
    return Counter(one[0] for one in taken if one is not None)


def test_each_kind_gets_the_same_weighted_bytes() -> None:
    schedule: Schedule[int] = Schedule()
    for kind in KINDS:
        for n in range(600):
            schedule.add(kind, 1000, n)
    counts = served(schedule, 740)
    weighted = {kind: counts[kind] * WEIGHTS[kind] for kind in KINDS}
    assert max(weighted.values()) - min(weighted.values()) <= 2 * max(WEIGHTS.values())
    assert counts["frame"] < counts["ocr"] < counts["asr"]


def test_a_kind_keeps_its_order_and_what_an_item_led_to_comes_before() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("ocr", 10, "page 1")
    schedule.add("ocr", 10, "page 2")
    assert schedule.take() == ("ocr", "page 1")
    schedule.add("ocr", 1, "line b", first=True)
    schedule.add("ocr", 1, "line a", first=True)
    assert [schedule.take() for _ in range(4)] == [
        ("ocr", "line a"), ("ocr", "line b"), ("ocr", "page 2"), None,
    ]  # fmt: skip


def test_idle_queues_gain_no_credit() -> None:
    schedule: Schedule[int] = Schedule()
    for n in range(100):
        schedule.add("frame", 1000, n)
    served(schedule, 90)
    for n in range(100):
        schedule.add("asr", 1000, n)
    counts = served(schedule, 12)
    assert counts["frame"] >= 3  # else speech would be served alone until it had caught up


def test_what_waits_is_counted() -> None:
    schedule: Schedule[int] = Schedule()
    schedule.add("frame", 30, 1)
    schedule.add("asr", 12, 2)
    assert (len(schedule), schedule.waiting_bytes, schedule.waiting("asr"), schedule.waiting("ocr")) == (2, 42, 1, 0)
    schedule.take()
    schedule.take()
    assert (len(schedule), schedule.waiting_bytes) == (0, 0)


def test_what_is_slow_becomes_dearer_within_bounds() -> None:
    schedule: Schedule[int] = Schedule()
    schedule.took("frame", 1000, 0.004)
    assert schedule.weights() == dict(WEIGHTS)  # with nothing to compare it with
    schedule.took("asr", 1000, 0.001)
    weights = schedule.weights()
    assert weights["frame"] == pytest.approx(1.5 * 2**0.5)
    assert weights["asr"] == pytest.approx(0.8 / 2**0.5)
    assert weights["ocr"] == WEIGHTS["ocr"]
    for _ in range(100):
        schedule.took("frame", 1000, 1000.0)
    assert schedule.weight("frame") == pytest.approx(1.5 * MOST)


def test_what_is_used_becomes_cheaper_within_bounds() -> None:
    schedule: Schedule[int] = Schedule()
    for kind, used in (("frame", 0), ("ocr", 90), ("asr", 30)):
        schedule.used(kind, 100, used)  # type: ignore[arg-type]
    weights = schedule.weights()
    assert weights["ocr"] < WEIGHTS["ocr"]
    assert weights["frame"] > WEIGHTS["frame"]
    schedule.used("frame", 10_000_000, 0)
    assert schedule.weight("frame") == pytest.approx(1.5 * MOST)


def test_little_evidence_moves_little() -> None:
    schedule: Schedule[int] = Schedule()
    schedule.used("frame", 1, 0)
    schedule.used("ocr", 1, 1)
    assert schedule.weight("frame") == pytest.approx(1.5, rel=0.05)
    schedule.took("ocr", 0, 1.0)
    schedule.took("ocr", 10, 0.0)
    assert schedule.weight("ocr") == pytest.approx(1.0, rel=0.05)
