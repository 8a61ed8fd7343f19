"""A cache with compiled plans and one without are told the same, and say the same: values, events, counters, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache import Cache, Region
from mmcache.attribution import attributed
from mmcache.lab.plans_recurring import Plans
from mmcache.lab.plans_wired import wire
from mmcache.lookup import Lookup
from mmcache.model.errors import MMCacheError
from mmcache.model.event import MissReason
from mmcache.model.void import VoidKey
from mmcache.testing import FakeClock

BLOCKS = 8
LIMIT = 24 << 10
"""Bytes: room for a few blocks, so that some are evicted."""


def plans(cache: Cache, **options: int) -> Plans:
    return Plans(cache._store, cache.scopes, cache._tally, cache.events, cache.clock, **options)


class Side:
    """One of the two caches."""

    def __init__(self, planned: bool) -> None:
        self.clock = FakeClock()
        self.cache = Cache(
            memory=LIMIT, clock=self.clock, secret=bytes(32), policy="lru", stale_while_revalidate=4.0, codec="raw"
        )
        cache = self.cache
        picture = np.zeros((4, 4, 3), np.uint8)
        self.keys = [
            cache.key(picture + n, modality="image", signature="model-1") if n % 2 else
            cache.key(f"text {n}", modality="text", signature=f"model-{n % 4}", tenant="other" if n == 6 else None)
            for n in range(BLOCKS - 1)
        ]  # fmt: skip
        region = Region.whole(4, 4).crop((0, 0, 2, 2))
        self.keys.append(cache.key(picture, modality="image", signature="model-1", region=region))
        self.keys.append(VoidKey(self.keys[0].scope, bytes(16)))
        self.keys[-1].reason = MissReason.STALE_LEASE  # type: ignore[attr-defined]
        self.plans = plans(cache, recurrences=2, every=1, review=64) if planned else None
        wire(cache.answers, self.plans)

    def do(self, step: tuple[Any, ...]) -> object:
        """What a caller sees of it."""
        what, *rest = step
        cache, keys = self.cache, self.keys
        try:
            match what:
                case "look":
                    names, settled, route = rest
                    with attributed(route=route):
                        return [seen(look) for look in cache.answers.look_up([keys[n] for n in names], settled=settled)]
                case "put":
                    name, size, ttl = rest
                    return cache.put(keys[name], np.full(size, name, np.float32), cost=0.5 + name, ttl=ttl)
                case "constant":
                    return cache.put(keys[rest[0]], f"value {rest[0]}", cost=0.25)
                case "advance":
                    self.clock.advance(rest[0])
                case "invalidate":
                    return cache.invalidate(keys[rest[0]])
                case "switch":
                    cache.switch(rest[0])
                case _:
                    cache.close()
            return None
        except MMCacheError as error:
            return type(error), str(error)

    def told(self) -> object:
        """All that watchers can know."""
        return (
            self.cache.events.recent(), self.cache.events.counts.all(), self.cache._tally.lookups.all(),
            self.cache._store.memory.hits, self.cache.stats() if not self.cache._closed else None,
        )  # fmt: skip


def seen(look: Lookup) -> object:
    value = None if look.make is None else look.make()
    shown = (value.dtype.str, value.tobytes(), value.flags.writeable) if isinstance(value, np.ndarray) else value
    return shown, look.tier, look.reason, look.deadline, look.stale, look.detail, look.saved, look.size, look.created


names = st.one_of(
    st.sampled_from([[0], [1, 2], [1, 4], [3, 0, 7], [1, 2, 3, 4, 5], [7, 8]]),
    st.lists(st.integers(0, BLOCKS), max_size=5),
)
steps = st.one_of(
    st.tuples(st.just("look"), names, st.booleans(), st.sampled_from(["", "/a", "/b"])),
    st.tuples(st.just("look"), names, st.booleans(), st.just("")),
    st.tuples(
        st.just("put"), st.integers(0, BLOCKS - 1), st.sampled_from([4, 300]), st.sampled_from([None, 2.0, 20.0])
    ),
    st.tuples(st.just("constant"), st.integers(0, BLOCKS - 1)),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 2.0, 5.0])),
    st.tuples(st.just("invalidate"), st.integers(0, BLOCKS - 1)),
    st.tuples(st.just("switch"), st.sampled_from(["on", "on", "shadow", "off"])),
)


@given(st.lists(st.integers(0, BLOCKS - 1), max_size=8), st.lists(steps, max_size=60), st.booleans())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_nobody_can_tell(first: list[int], then: list[tuple[Any, ...]], closed: bool) -> None:
    plain, planned = Side(False), Side(True)
    try:
        begin = [("put", name, 4, None) for name in first]
        warm = [("look", [1, 2], True, "")] * 4 + [("look", [0], False, "")] * 4 if first else []
        end = [("close",), ("look", [1, 2], True, "")] if closed else []
        for step in [*begin, *warm, *then, *end]:
            assert plain.do(step) == planned.do(step), step
            assert plain.told() == planned.told(), step
    finally:
        plain.cache.close()
        planned.cache.close()


def test_the_compiled_path_is_what_was_compared() -> None:
    plain, planned = Side(False), Side(True)
    assert planned.plans is not None
    try:
        for side in (plain, planned):
            for name in range(4):
                side.do(("put", name, 4, 50.0 if name else None))
        answered = 0
        for turn in range(20):
            for step in (("look", [1, 2], turn % 2 == 0, "/a"), ("look", [0, 3], False, ""), ("look", [0], True, "/b")):
                before = {place: one.answered for place, one in planned.plans._plans.items()}
                assert plain.do(step) == planned.do(step)
                answered += before != {place: one.answered for place, one in planned.plans._plans.items()}
        assert plain.told() == planned.told()
        assert answered >= 50
    finally:
        plain.cache.close()
        planned.cache.close()
