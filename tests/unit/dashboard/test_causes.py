"""Causes of a fall: apart, in the right place, adding up; and none where nothing fell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.dashboard.cause_world import (
    BATCH,
    INTERACTIVE,
    QUARTER_PAST_TWO,
    Change,
    Source,
    World,
    batch_only,
    incident,
    swap_only,
)

from mmcache.dashboard.causes import find
from mmcache.dashboard.decompose import book, decompose, fall
from mmcache.dashboard.rows import REASONS, CauseRows, Group, Window
from mmcache.dashboard.succession import successors


@pytest.mark.parametrize("weight", [1.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_two_causes_that_overlap_are_told_apart(seed: int, weight: float) -> None:
    rows = World(seed, change=incident, weight=weight).rows()
    found = {cause.cause: cause for cause in find(rows)}
    flood, swap = found["flood"], found["signature"]
    assert flood.where == {"tenant": "batch"}
    assert swap.where == {"instance": "encoder-2"}
    assert swap.since == QUARTER_PAST_TWO
    assert flood.since == QUARTER_PAST_TWO + 300
    assert [one.to_dict() for one in swap.moved] == [
        {"component": "model_version", "was": "clip-1.4.0", "now": "clip-1.5.0"}
    ]
    assert 0.6 < flood.share < 0.75
    assert 0.2 < swap.share < 0.35
    assert all(one.tenant == "batch" and one.reason == "absent" for one in flood.examples)
    assert all(one.instance == "encoder-2" and one.reason == "signature" for one in swap.examples)
    assert flood.examples
    assert swap.examples


@pytest.mark.parametrize(("change", "kind"), [(batch_only, "flood"), (swap_only, "signature")])
def test_one_cause_is_one(change: Change, kind: str) -> None:
    first, *others = find(World(4, change=change).rows())
    assert first.cause == kind
    assert first.share > 0.9
    assert [one.cause for one in others] in ([], ["other"])


def test_what_each_takes_alone_is_about_what_it_takes_with_the_other() -> None:
    """Where they overlap, neither swallows the other."""
    both = {one.cause: float(one.amount) for one in find(World(5, change=incident).rows())}
    alone = {change: find(World(5, change=change).rows())[0] for change in (batch_only, swap_only)}
    assert both["flood"] == pytest.approx(float(alone[batch_only].amount), rel=0.25)
    assert both["signature"] == pytest.approx(float(alone[swap_only].amount), rel=0.25)


counts = st.one_of(st.just(0.0), st.floats(0.01, 1e6))
some_group = st.builds(
    lambda tenant, instance, route, reason, before, now: Group(
        "image", route, tenant, "", "exact", "s", instance, "miss" if reason else "hit", reason, not reason, before,
        now, 0.0,
    ),
    st.sampled_from("tuv"), st.sampled_from("xyz"), st.sampled_from("pq"), st.sampled_from(("", *REASONS)), counts,
    counts,
)  # fmt: skip
windows = st.tuples(st.floats(1, 1e5), st.floats(1, 1e5))


@given(st.lists(some_group, max_size=30), windows)
def test_the_parts_add_up_to_the_fall_exactly(groups: list[Group], lengths: tuple[float, float]) -> None:
    held = book(groups)
    parts = decompose(held, Window(0.0, lengths[0]), Window(1e6, 1e6 + lengths[1]))
    assert sum((part.amount for part in parts), Fraction(0)) == (fall(held) if parts else fall(held) * 0)
    if fall(held):
        assert parts


@given(st.lists(some_group, max_size=30), windows)
def test_the_smallest_are_counted_together(groups: list[Group], lengths: tuple[float, float]) -> None:
    held = book(groups, most=3)
    assert len(held) <= 4
    whole, parts = book(groups), decompose(held, Window(0.0, lengths[0]), Window(1e6, 1e6 + lengths[1]))
    assert float(fall(held)) == pytest.approx(float(fall(whole)), abs=1e-9)
    assert sum((part.amount for part in parts), Fraction(0)) == fall(held)


@given(st.lists(some_group, max_size=30), windows)
def test_the_causes_add_up_to_the_fall_exactly(groups: list[Group], lengths: tuple[float, float]) -> None:
    rows = CauseRows(Window(0.0, lengths[0]), Window(1e6, 1e6 + lengths[1]), groups, [], [], [], [])
    found = find(rows)
    if found:
        assert sum((cause.amount for cause in found), Fraction(0)) == fall(book(groups))
        assert sum(cause.share for cause in found) == pytest.approx(1.0)
    json.dumps([cause.to_dict() for cause in found], allow_nan=False)


@given(st.lists(some_group, min_size=1, max_size=30))
def test_who_sends_as_much_as_before_is_no_traffic_that_came(groups: list[Group]) -> None:
    held = book(groups)
    still = {who for who, (old, new) in held.items() if old.lookups == new.lookups}
    parts = decompose(held, Window(0.0, 60.0), Window(60.0, 120.0))
    assert not [part for part in parts if not part.reason and part.who in still]


@pytest.mark.parametrize("weight", [1.0, 20.0])
def test_chance_alone_raises_nothing(weight: float) -> None:
    """Traffic that does not change, Poisson, 150 hours of it."""
    alarms = [seed for seed in range(150) if find(World(1000 + seed, weight=weight).rows())]
    assert alarms == []


def test_more_of_the_same_traffic_is_no_cause() -> None:
    def busier(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        times = 3.0 if t >= QUARTER_PAST_TWO else 1.0
        return times * source.rate, source.ratio, "absent", "a" * 16

    assert not [seed for seed in range(20) if find(World(seed, change=busier).rows())]


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason != "signature"])
def test_each_reason_is_a_cause_of_its_own(reason: str) -> None:
    def worse(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        bad = t >= QUARTER_PAST_TWO and source.route == "/v1/rerank"
        return source.rate, source.ratio * (0.5 if bad else 1.0), reason, "a" * 16

    first = find(World(7, change=worse).rows())[0]
    assert first.cause == reason
    assert first.where in ({"tenant": "search"}, {"tenant": "search", "route": "/v1/rerank"})
    assert first.since == QUARTER_PAST_TWO
    assert "tenant search" in first.text


def test_good_traffic_that_went_away() -> None:
    def gone(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        quiet = t >= QUARTER_PAST_TWO and source.tenant == "shop"
        return source.rate * (0.02 if quiet else 1.0), source.ratio, "absent", "a" * 16

    first = find(World(8, change=gone).rows())[0]
    assert (first.cause, first.where) == ("lull", {"tenant": "shop"})


def test_a_tenant_that_is_new() -> None:
    def new(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        there = source.tenant != "batch" or t >= QUARTER_PAST_TWO
        return source.rate * (8.0 if source.tenant == "batch" else 1.0) * there, source.ratio / 8, "absent", "a" * 16

    def usual(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        rate, ratio, reason, signature = new(t, instance, source)
        return rate, ratio if source.tenant == "batch" else source.ratio, reason, signature

    first = find(World(9, change=usual, sources=(*INTERACTIVE, BATCH)).rows())[0]
    assert first.cause == "flood"
    assert first.where["tenant"] == "batch"
    assert "not there before" in first.text


def test_two_processes_of_three_are_both_named() -> None:
    def two(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        down = t >= QUARTER_PAST_TWO and instance != "encoder-1"
        return source.rate, source.ratio * (0.5 if down else 1.0), "tier-down", "a" * 16

    first = find(World(10, change=two).rows())[0]
    assert first.where == {"instance": ["encoder-2", "encoder-3"]}


def renamed(rows: CauseRows, name: Callable[[str, float], str]) -> CauseRows:
    """The same, of processes that are called otherwise from 02:15 on."""
    groups = []
    for group in rows.groups:
        old, new = (name(group.instance, t) for t in (QUARTER_PAST_TWO - 1, QUARTER_PAST_TWO))
        if old == new:
            groups.append(group)
        else:
            groups += [replace(group, instance=old, now=0.0), replace(group, instance=new, before=0.0)]
    signatures = []
    for row in rows.signatures:
        old, new = (name(row.instance, t) for t in (QUARTER_PAST_TWO - 1, QUARTER_PAST_TWO))
        before = replace(row, instance=old, hits=0.0, misses=0.0)
        signatures += [before, replace(row, instance=new, before_hits=0.0, before_misses=0.0)] if old != new else [row]
    return replace(
        rows, groups=groups, signatures=[row for row in signatures if row.before_hits + row.hits + row.misses > 0],
        steps=[replace(step, instance=name(step.instance, step.start)) for step in rows.steps],
        examples=[replace(one, instance=name(one.instance, one.start)) for one in rows.examples],
    )  # fmt: skip


@pytest.mark.parametrize("restarted", [("encoder-2",), ("encoder-1", "encoder-2", "encoder-3")])
def test_a_process_that_was_restarted_is_the_same_one(restarted: tuple[str, ...]) -> None:
    def name(instance: str, t: float) -> str:
        pid = 4711 if t >= QUARTER_PAST_TWO and instance in restarted else 17
        return f"{instance}-{pid}"

    found = {cause.cause: cause for cause in find(renamed(World(1, change=incident).rows(), name))}
    assert found["signature"].where == {"instance": "encoder-2-4711"}
    assert [one.component for one in found["signature"].moved] == ["model_version"]
    assert found["signature"].since == QUARTER_PAST_TWO
    assert found["signature"].examples
    assert found["flood"].where == {"tenant": "batch"}
    assert 0.2 < found["signature"].share < 0.35
    assert not find(renamed(World(1).rows(), name))


def test_one_process_more_is_not_anothers_successor() -> None:
    def more(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        there = instance != "encoder-3" or t >= QUARTER_PAST_TWO
        return source.rate * there, source.ratio * (0.3 if instance == "encoder-3" else 1.0), "absent", "a" * 16

    rows = World(12, change=more).rows()
    assert successors(rows) == {}
    first = find(rows)[0]
    assert first.where["instance"] == "encoder-3"


def test_names_from_outside_cannot_hide_anything() -> None:
    evil = "a\x1b[2J\u202eb"

    def flood(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
        there = source.tenant != evil or t >= QUARTER_PAST_TWO
        return source.rate * there * 5, source.ratio, "absent", "a" * 16

    found = find(World(11, change=flood, sources=(*INTERACTIVE, Source(evil, "/", 4.0, 0.05))).rows())
    assert found[0].where["tenant"] == evil
    assert all(one.isprintable() for one in found[0].text)
    assert "a\\u001b[2J\\u202eb" in found[0].text


def test_nothing_comes_of_nothing() -> None:
    rows = World(0, change=incident).rows()
    assert find(replace(rows, groups=[])) == []
    assert find(replace(rows, groups=[replace(group, before=0.0) for group in rows.groups])) == []
    assert find(replace(rows, steps=[], signatures=[], keys=[], examples=[]))
    improved = [replace(group, before=group.now, now=group.before) for group in rows.groups]
    assert find(replace(rows, groups=improved)) == []


def test_a_cause_as_the_api_gives_it() -> None:
    flood = find(World(1, change=incident).rows())[0].to_dict()
    json.dumps(flood, allow_nan=False)
    assert set(flood) == {"cause", "text", "misses", "share", "since", "where", "examples", "moved"}
    assert set(flood["examples"][0]) == {"trace", "span"}
