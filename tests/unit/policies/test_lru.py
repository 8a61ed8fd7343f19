"""LRU against a list, the obvious way to do it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.lru import LRU
from mmcache.testing import make_key

CALLS = st.lists(st.tuples(st.sampled_from(["add", "touch", "drop"]), st.integers(0, 6)), max_size=60)


@given(CALLS)
def test_least_recently_used_first(calls: list[tuple[str, int]]) -> None:
    policy, order = LRU(), list[Key]()
    for now, (call, n) in enumerate(calls):
        key = make_key(n)
        match call:
            case "add":
                policy.add(key, Facts(1), now)
                order = [other for other in order if other != key] + [key]
            case "touch":
                policy.touch(key, now)
                order = [other for other in order if other != key] + [key] * (key in order)
            case "drop":
                policy.drop(key)
                order = [other for other in order if other != key]
        assert list(policy.victims(now)) == order
