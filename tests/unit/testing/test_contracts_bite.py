"""A contract that nothing can fail is worth nothing: each of these plug-ins is wrong in one way, and is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache.codecs.raw import Raw
from mmcache.model.block import Facts, Spec
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import CodecContract, FakeClock, PolicyContract, TierContract, WholeThaw, make_key
from mmcache.tiers.base import Deadline, Found, Tier
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.wrapper import Wrapper


def caught(run: Callable[[], object]) -> bool:
    try:
        run()
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


class Unordered(Wrapper):
    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        order = sorted(set(keys))
        found = dict(zip(order, self.inner.get(order), strict=True))
        return list(found.values())


class NearMiss(Wrapper):
    """Looks at the content's digest only: another tenant's block answers."""

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        held = {line.key.digest: line.key for line in self.inner.scan()}
        return self.inner.get([held.get(key.digest, key) for key in keys])


class Immortal(Wrapper):
    def put(self, frames: Sequence[Any], deadlines: Sequence[Deadline]) -> list[Any]:
        return self.inner.put(frames, [None] * len(frames))


class Deaf(Wrapper):
    def close(self) -> None:
        """Stays open."""


BROKEN_TIERS = {
    "test_answers_keep_the_order_of_the_keys": Unordered,
    "test_a_neighbouring_key_is_never_answered": NearMiss,
    "test_a_deadline_ends_a_block_at_its_very_second": Immortal,
    "test_closed_is_closed": Deaf,
}


@pytest.mark.parametrize(("name", "broken"), BROKEN_TIERS.items())
def test_a_broken_tier_is_caught(name: str, broken: type[Wrapper], tmp_path: Path) -> None:
    clock = FakeClock()
    tier: Tier = broken(MemoryTier(MemorySettings(), LRU(), WholeThaw, clock=clock))
    arguments = (tier, clock) if "clock" in getattr(TierContract, name).__code__.co_varnames[:3] else (tier,)
    assert caught(lambda: getattr(TierContract(), name)(*arguments))


class Forgetful(LRU):
    def victims(self, now: float) -> Iterator[Key]:
        return iter(list(super().victims(now))[:10])


class Greedy(LRU):
    """Forgets what it yields."""

    def victims(self, now: float) -> Iterator[Key]:
        for key in list(super().victims(now)):
            self.drop(key)
            yield key


class Haunted(LRU):
    """A late touch brings a dropped key back."""

    def touch(self, key: Key, now: float) -> None:
        self.add(key, Facts(1), now)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (Forgetful, "test_every_known_key_is_a_victim_once"),
        (Greedy, "test_victims_mutates_nothing_and_may_be_abandoned"),
        (Haunted, "test_a_dropped_key_starts_anew"),
    ],
)
def test_a_broken_policy_is_caught(broken: type[LRU], name: str) -> None:
    class Suite(PolicyContract):
        def make_policy(self) -> LRU:
            return broken()

    assert caught(getattr(Suite(), name))


class Rounding(Raw):
    """Says lossless, is not."""

    def decode(self, data: Any, spec: Spec) -> Any:
        array = super().decode(data, spec)
        return np.round(array, 1) if array.dtype.kind == "f" else array


class Trusting(Raw):
    """Believes any length."""

    def decode(self, data: Any, spec: Spec) -> Any:
        return np.frombuffer(bytes(data), np.uint8)


@pytest.mark.parametrize(
    ("broken", "name"),
    [(Rounding, "test_comes_back"), (Trusting, "test_damaged_input_is_an_error_or_a_value_of_the_spec")],
)
def test_a_broken_codec_is_caught(broken: type[Raw], name: str) -> None:
    class Suite(CodecContract):
        def make_codec(self) -> Raw:
            return broken()

    suite = Suite()
    assert caught(lambda: getattr(suite, name)(suite.make_codec()))


def test_keys_differ_in_each_part() -> None:
    keys = {make_key(1), make_key(2), make_key(1, scope=2), make_key(1, region=0), make_key(1, region=1)}
    assert len(keys) == 5


def test_time_runs_forward_only() -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    clock.step_wall(-50)
    assert (clock.monotonic(), clock.wall()) == (1000.0, 1_800_000_000.0 - 50)
