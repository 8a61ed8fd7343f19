"""A lower tier that fails or lies: the caller gets a right value or none, and the cache goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mmcache import Cache
from mmcache.model.event import Failed
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import WholeThaw
from mmcache.tiers.faults import Fault, FaultyTier
from mmcache.tiers.memory import MemoryTier


class Broken:
    """A cache over a faulty tier; `next_fault` is the fate of the next call of that operation."""

    def __init__(self) -> None:
        self.next_fault: dict[str, Fault] = {}
        remote = MemoryTier(MemorySettings(1 << 20), LRU(), WholeThaw)
        remote.name = "remote"
        self.tier = FaultyTier(remote, lambda operation: self.next_fault.pop(operation, None))
        self.cache = Cache(memory="1MiB", lower=[self.tier])
        self.key = self.cache.key("a cat", modality="text", signature="model-1")
        self.other = self.cache.key("a dog", modality="text", signature="model-1")

    def forget_near(self) -> None:
        self.cache._store.memory.drop([self.key, self.other])

    def failures(self) -> int:
        return sum(isinstance(event, Failed) for event in self.cache.events.recent())


@pytest.fixture
def broken() -> Iterator[Broken]:
    broken = Broken()
    yield broken
    broken.cache.close()


@pytest.mark.parametrize(
    "fault",
    [Fault.ERROR, Fault.LOST_REPLY, Fault.SHORT, Fault.WRONG_KEY, Fault.CORRUPT],
)
def test_a_failed_or_lying_get_is_a_miss(broken: Broken, fault: Fault) -> None:
    value = np.arange(8.0)
    broken.cache.put(broken.other, np.zeros(8))
    broken.cache.put(broken.key, value)
    broken.forget_near()
    broken.next_fault["get"] = fault
    assert broken.cache.get(broken.key, "miss") == "miss"
    assert broken.failures() == 1
    if fault is not Fault.CORRUPT:
        assert (broken.cache.get(broken.key) == value).all()


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST_REPLY, Fault.SHORT])
def test_a_failed_put_does_not_fail_the_caller(broken: Broken, fault: Fault) -> None:
    broken.next_fault["put"] = fault
    assert broken.cache.get_or_compute(broken.key, lambda: "computed") == "computed"
    assert broken.cache.get(broken.key) == "computed"
    assert broken.failures() == 1


def test_an_older_value_does_not_outlive_a_put_that_failed(broken: Broken) -> None:
    broken.cache.put(broken.key, "old")
    broken.next_fault["put"] = Fault.ERROR
    broken.cache.put(broken.key, "new")
    broken.forget_near()
    assert broken.cache.get(broken.key, "miss") in ("new", "miss")


def test_an_invalidated_block_does_not_come_back_when_its_drop_failed(broken: Broken) -> None:
    broken.cache.put(broken.key, "old")
    broken.next_fault["drop"] = Fault.ERROR
    broken.cache.invalidate(broken.key)
    assert broken.cache.get(broken.key, "miss") == "miss"
    broken.cache.put(broken.key, "new")
    broken.forget_near()
    assert broken.cache.get(broken.key, "miss") in ("new", "miss")


def test_explain_survives_a_tier_that_answers_too_little(broken: Broken) -> None:
    broken.next_fault["get"] = Fault.SHORT
    assert not any(finding.found for finding in broken.cache.explain(broken.key).tiers)


def test_what_a_tier_failed_to_forget_is_forgotten_before_the_process_ends(broken: Broken) -> None:
    broken.cache.put(broken.key, "old")
    broken.next_fault["drop"] = Fault.ERROR
    broken.cache.invalidate(broken.key)
    broken.cache.flush()
    assert not [held for held in broken.tier.inner.scan() if held.key == broken.key]
    broken.cache.put(broken.key, "old")
    broken.next_fault["drop"] = Fault.ERROR
    broken.cache.invalidate(broken.key)
    broken.next_fault["drop"] = Fault.ERROR
    broken.cache.flush()
    assert "after a restart" in broken.cache.events.recent()[-1].detail  # type: ignore[union-attr]
