"""The load from counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmcache.scale.load import Readings, whole
from mmcache.scale.observed import SLOTS, NodeSeen

ALL = frozenset(range(SLOTS))
HALF = frozenset(range(SLOTS // 2))


def node(
    id: str, hits: int, misses: int = 0, *, slots: frozenset[int] = ALL, primary: str = "", keys: int = 0
) -> NodeSeen:
    return NodeSeen(id, primary=primary, slots=slots, keys=keys, requests=hits + misses, hits=hits, misses=misses)


def rates(*looks: tuple[float, dict[str, NodeSeen]]) -> list[float | None]:
    readings = Readings()
    found = [readings.take(nodes, at, 60.0) for at, nodes in looks]
    return [None if rate is None else rate.requests for rate in found]


def test_differences_count_and_not_counters() -> None:
    assert rates((0, {"a": node("a", 1000)}), (5, {"a": node("a", 1100)}), (10, {"a": node("a", 1100)})) == [
        None,
        20,
        0,
    ]


def test_replicas_that_are_read_count_too() -> None:
    first = {"a": node("a", 10), "b": node("b", 5, primary="a", slots=frozenset())}
    second = {"a": node("a", 20), "b": node("b", 25, primary="a", slots=frozenset())}
    assert rates((0, first), (10, second)) == [None, 3]


def test_a_new_node_and_one_that_counts_anew_begin_with_their_first_reading() -> None:
    looks = [
        (0, {"a": node("a", 1000)}),
        (10, {"a": node("a", 1100), "b": node("b", 10**9, primary="a")}),
        (20, {"a": node("a", 5), "b": node("b", 10**9 + 50, primary="a")}),
        (30, {"a": node("a", 25), "b": node("c", 7, primary="a")}),
    ]
    assert rates(*looks) == [None, 10, 5, 2]


def test_a_node_that_did_not_answer_meanwhile_is_no_burst() -> None:
    full = {"a": node("a", 0, slots=HALF), "b": node("b", 0, slots=ALL - HALF)}
    later = {"a": node("a", 200, slots=HALF)}
    back = {"a": node("a", 300, slots=HALF), "b": node("b", 300, slots=ALL - HALF)}
    assert rates((0, full), (20, later), (30, back)) == [None, None, 20]


def test_a_replica_that_takes_over_brings_its_own_counters() -> None:
    first = {"a": node("a", 10**6), "b": node("b", 500, primary="a", slots=frozenset())}
    gone = {"b": node("b", 520, primary="a", slots=frozenset())}
    then = {"b": node("b", 620)}
    again = {"b": node("b", 720), "a": node("c", 3, primary="b", slots=frozenset())}
    assert rates((0, first), (10, gone), (20, then), (30, again)) == [None, None, 10, 10]


def test_a_clock_that_is_set_back_begins_anew() -> None:
    looks = [(100, {"a": node("a", 0)}), (50, {"a": node("a", 10)}), (60, {"a": node("a", 30)})]
    assert rates(*looks) == [None, None, 2]
    assert rates((0, {"a": node("a", 0)}), (0, {"a": node("a", 10)})) == [None, None]


def test_keys_that_were_moved_away_were_not_asked_for() -> None:
    readings = Readings()
    readings.take({"a": node("a", 0, keys=500)}, 0, 60.0)
    rate = readings.take({"a": node("a", 450, keys=100)}, 10, 60.0, moved={("a", "b")})
    assert rate is not None
    assert rate.requests == pytest.approx(5)
    rate = readings.take({"a": node("a", 500, keys=50)}, 20, 60.0)
    assert rate is not None
    assert rate.requests == pytest.approx(5)


def test_redis_6_counts_more_of_what_was_moved() -> None:
    def old(id: str, hits: int, misses: int, keys: int) -> NodeSeen:
        return replace(node(id, hits, misses, keys=keys), version="redis 6.2.14")

    readings = Readings()
    readings.take({"a": old("a", 0, 0, 500), "b": old("b", 0, 0, 0)}, 0, 60.0)
    nodes = {"a": old("a", 1230, 10, 100), "b": old("b", 40, 420, 400)}
    rate = readings.take(nodes, 10, 60.0, moved={("a", "b"), ("b", "a")})
    assert rate is not None
    assert rate.requests == pytest.approx((30 + 10 + 40 + 20) / 10)
    assert readings.hit_ratio == pytest.approx(0.7)


def test_the_hit_ratio_is_of_the_window() -> None:
    readings = Readings()
    assert readings.hit_ratio is None
    for second in range(0, 600, 10):
        readings.take({"a": node("a", 0, second)}, second, 60.0)
    assert readings.hit_ratio == 0
    for second in range(600, 700, 10):
        readings.take({"a": node("a", 30 * (second - 590), 590 + second - 590)}, second, 60.0)
    assert readings.hit_ratio == pytest.approx(30 / 31)


def test_whole() -> None:
    assert whole({"a": node("a", 0)})
    assert not whole({"a": node("a", 0, slots=HALF)})
    assert not whole({"a": node("a", 0, primary="b")})
    assert not whole({})
