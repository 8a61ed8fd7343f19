"""How many shards a load is to have."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.scale.bursts import Load
from mmcache.scale.sizing import FULL, wanted
from mmcache.scale.spec import BurstSpec, ClusterSpec

SPEC = ClusterSpec(min_shards=3, max_shards=9, qps_threshold=1.0)
LONG_AGO, NOW = 0.0, 100_000.0


def load(qps: float, *, burst: bool = False, latest: float | None = None, peak: float | None = -1.0) -> Load:
    return Load(
        qps, qps / 2 if burst else qps, burst, NOW - 1 if burst else None, "AboveUsual" if burst else "Usual",
        qps if latest is None else latest, qps if peak == -1.0 else peak,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("now", "seen", "shards", "reason"),
    [
        (3, load(2500), 3, "Fits"),
        (3, load(3001), 4, "Load"),
        (3, load(3500, burst=True), 4, "Burst"),
        (3, load(2900, burst=True), 3, "Fits"),
        (3, load(3500, burst=True, latest=8000), 5, "Burst"),
        (3, load(2000, latest=8000), 3, "Fits"),
        (3, load(8000), 5, "Load"),
        (8, load(20_000, burst=True), 9, "Burst"),
        (9, load(20_000, burst=True), 9, "AtMaximum"),
        (5, load(3300), 5, "Fits"),
        (5, load(3100), 4, "Quiet"),
        (5, load(100), 4, "Quiet"),
        (5, load(100, burst=True), 5, "Fits"),
        (5, load(100, peak=4500), 5, "Fits"),
        (5, load(100, peak=None), 5, "Fits"),
        (3, load(0), 3, "Fits"),
        (2, load(0), 3, "MinShards"),
        (12, load(50_000, burst=True), 9, "MaxShards"),
        (4, None, 4, "Fits"),
    ],
    ids=range(19),
)
def test_decisions(now: int, seen: Load | None, shards: int, reason: str) -> None:
    found = wanted(SPEC, seen, now, LONG_AGO, NOW)
    assert (found.shards, found.reason) == (shards, reason)
    assert found.message


def test_a_cap_is_said() -> None:
    assert "maxShards is 9" in wanted(SPEC, load(20_000, burst=True), 9, LONG_AGO, NOW).message
    assert "at most 2" in wanted(SPEC, load(20_000), 3, LONG_AGO, NOW).message
    assert "2.0 times what is usual" in wanted(SPEC, load(4000, burst=True), 3, LONG_AGO, NOW).message


def test_no_shard_goes_before_the_quiet_time_is_over() -> None:
    assert wanted(SPEC, load(100), 5, NOW - 299, NOW).reason == "CoolDown"
    assert wanted(SPEC, load(100), 5, NOW - 300, NOW).shards == 4
    assert wanted(SPEC, load(100), 5, NOW + 1000, NOW).shards == 4  # a clock that was set back holds nobody up


def test_what_is_under_way_is_waited_for() -> None:
    assert wanted(SPEC, load(9000), 5, NOW, NOW, served=4).reason == "UnderWay"
    assert wanted(SPEC, load(9000), 5, NOW, NOW, served=5).shards == 7
    assert wanted(SPEC, load(100), 4, LONG_AGO, NOW, served=5).reason == "UnderWay"
    assert wanted(SPEC, load(4500), 4, NOW, NOW, served=5).shards == 5  # a shrinking that cannot go on holds nobody up
    assert wanted(SPEC, load(100), 5, LONG_AGO, NOW, served=4).shards == 4  # nor does a growing
    assert wanted(replace(SPEC, min_shards=6), load(100), 5, NOW, NOW, served=4).shards == 6


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    qps=st.floats(0, 1e6), latest=st.floats(0, 1e6), burst=st.booleans(), peak=st.none() | st.floats(0, 1e6),
    now=st.integers(0, 60), low=st.integers(3, 20), more=st.integers(0, 30), most=st.integers(1, 10),
    ago=st.floats(0, 1000), threshold=st.floats(0.01, 100), served=st.none() | st.integers(0, 60),
)  # fmt: skip
def test_bounds(
    qps: float, latest: float, burst: bool, peak: float | None, now: int, low: int, more: int, most: int, ago: float,
    threshold: float, served: int | None,
) -> None:  # fmt: skip
    spec = ClusterSpec(
        min_shards=low, max_shards=low + more, qps_threshold=threshold, burst=BurstSpec(most_shards_a_step=most)
    )
    seen = load(qps, burst=burst, latest=latest, peak=peak)
    found = wanted(spec, seen, now, NOW - ago, NOW, served)
    assert low <= found.shards <= low + more
    if low <= now <= low + more:
        assert now - 1 <= found.shards <= now + most
        if found.shards < now:
            assert not burst
            assert ago >= 300 - 1e-6
            assert peak is not None
            assert peak <= FULL * found.shards * 1000 * threshold
        if found.shards > now:
            assert found.shards <= ceil(max(qps, latest) / (1000 * threshold))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(qps=st.floats(0, 12_000), start=st.integers(3, 9))
def test_a_constant_load_comes_to_rest(qps: float, start: int) -> None:
    shards, seen, changed = start, [], LONG_AGO
    for turn in range(40):
        now = NOW + 400 * turn
        found = wanted(SPEC, load(qps), shards, changed, now)
        if found.shards != shards:
            shards, changed = found.shards, now
            seen.append(found.shards)
    assert shards == wanted(SPEC, load(qps), shards, changed, NOW + 1e6).shards
    assert seen in (sorted(seen), sorted(seen, reverse=True))  # one way only
