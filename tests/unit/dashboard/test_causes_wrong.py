"""Situations in which a wrong cause is easily named: it must not be, and what is said must be true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.dashboard.cause_world import INTERACTIVE, QUARTER_PAST_TWO, Source, World, swap_only
from tests.unit.dashboard.test_causes import renamed

from mmcache.dashboard.causes import Cause, find
from mmcache.dashboard.decompose import MANY
from mmcache.dashboard.dips import dip
from mmcache.dashboard.rows import CauseRows, Group, SignatureRow, StepRow, Window
from mmcache.dashboard.steps import Tally

Drawn = tuple[float, float, str, str]
A, B = "a" * 16, "b" * 16


def after(t: float, seconds: float = 0.0) -> bool:
    return t >= QUARTER_PAST_TWO + seconds


def kinds(found: list[Cause]) -> list[str]:
    return [cause.cause for cause in found if cause.cause != "other"]


def few(before: tuple[float, float], now: tuple[float, float]) -> CauseRows:
    """One process; hits and misses of both windows."""
    groups = [
        Group(
            "image", "/", "t", "", "exact", "s", "one", "miss" if reason else "hit", reason, not reason, old, new, 0.0
        )
        for reason, old, new in (("", before[0], now[0]), ("evicted", before[1], now[1]))
    ]
    return CauseRows(Window(0.0, 600.0), Window(600.0, 1200.0), groups, [], [], [], [])


@pytest.mark.parametrize("now", [(19.0, 1.0), (1.0, 1.0), (18.0, 2.0)])
def test_one_miss_of_twenty_lookups_is_chance(now: tuple[float, float]) -> None:
    assert find(few((999.0, 1.0), now)) == []


def test_twenty_lookups_that_all_miss_are_none() -> None:
    assert kinds(find(few((20.0, 0.0), (0.0, 20.0)))) == ["evicted"]


def test_silence_and_a_rise_are_no_fall() -> None:
    assert find(few((900.0, 100.0), (0.0, 0.0))) == []
    assert find(few((500.0, 500.0), (900.0, 100.0))) == []


def test_a_deadline_that_is_too_short_while_traffic_grows_is_no_flood() -> None:
    def shorter(t: float, instance: str, source: Source) -> Drawn:
        if source.tenant != "search" or not after(t):
            return source.rate, source.ratio, "absent", A
        return 1.5 * source.rate, source.ratio * 0.4, "expired", A

    first = find(World(3, change=shorter).rows())[0]
    assert (first.cause, first.where["tenant"]) == ("expired", "search")
    assert first.share > 0.7


def test_an_invalidation_while_traffic_grows_is_no_flood() -> None:
    def worse(t: float, instance: str, source: Source) -> Drawn:
        if source.tenant != "search" or not after(t):
            return source.rate, source.ratio, "absent", A
        return 1.5 * source.rate, source.ratio * 0.2, "absent", A

    first = find(World(3, change=worse).rows())[0]
    assert (first.cause, first.where["tenant"]) == ("absent", "search")


@pytest.mark.parametrize("minutes", [5, 25])
def test_what_expires_slowly_more_and_more(minutes: int) -> None:
    def slowly(t: float, instance: str, source: Source) -> Drawn:
        share = min(1.0, max(0.0, (t - QUARTER_PAST_TWO) / (60 * minutes)))
        return source.rate, source.ratio * (1 - 0.5 * share), "expired", A

    found = find(World(4, change=slowly).rows())
    assert kinds(found) == ["expired"]
    assert found[0].where == {}


def test_a_memory_of_half_the_size() -> None:
    def halved(t: float, instance: str, source: Source) -> Drawn:
        return source.rate, source.ratio * (0.7 if after(t) and instance == "encoder-1" else 1.0), "evicted", A

    found = find(World(5, change=halved).rows())
    assert kinds(found) == ["evicted"]
    assert found[0].where == {"instance": "encoder-1"}


def test_two_causes_in_one_process() -> None:
    def both(t: float, instance: str, source: Source) -> Drawn:
        if instance != "encoder-3" or not after(t):
            return source.rate, source.ratio, "absent", A
        return source.rate, source.ratio * 0.4, "tier-down" if source.tenant == "shop" else "evicted", A

    found = {cause.cause: cause.where for cause in find(World(6, change=both).rows()) if cause.cause != "other"}
    assert found.keys() == {"tier-down", "evicted"}
    assert all(where["instance"] == "encoder-3" for where in found.values())


@pytest.mark.parametrize("ratio", [0.3, 0.85, 0.99])
def test_a_route_of_another_name_is_no_flood(ratio: float) -> None:
    """Neither by itself nor beside a fall that is real."""
    sources = (INTERACTIVE[0], Source("search", "/v1/rerank", 4.0, ratio))
    for change, wanted in ((None, []), (swap_only, ["signature"])):
        rows = World(7, sources=sources, change=change).rows()
        groups = []
        for group in rows.groups:
            if group.route == "/v1/rerank":
                groups += [replace(group, now=0.0), replace(group, route="/v2/rerank", before=0.0)]
            else:
                groups.append(group)
        found = find(replace(rows, groups=groups))
        assert kinds(found) == wanted
        if wanted:
            assert found[0].where == {"instance": "encoder-2"}
            assert found[0].share > 0.9


def test_processes_that_share_the_work_of_others_are_no_flood_of_a_batch() -> None:
    def scaled(t: float, instance: str, source: Source) -> Drawn:
        if instance == "encoder-1":
            return source.rate * (0.5 if after(t) else 1.0), source.ratio, "absent", A
        there = after(t) and instance == "encoder-2"
        return source.rate * 0.5 * there, source.ratio * 0.3, "absent", A

    first = find(World(8, change=scaled).rows())[0]
    assert first.where == {"instance": "encoder-2"}
    assert "New processes at instance encoder-2" in first.text
    assert "batch" not in first.text


def test_a_process_that_was_restarted_says_that_its_memory_is_gone() -> None:
    def cold(t: float, instance: str, source: Source) -> Drawn:
        return source.rate, source.ratio * (0.2 if after(t) and instance == "encoder-2" else 1.0), "absent", A

    rows = World(9, change=cold).rows()
    same = find(rows)[0]
    assert (same.cause, same.where) == ("absent", {"instance": "encoder-2"})
    assert "restart" in same.text
    other = find(renamed(rows, lambda name, t: f"{name}-{'new' if after(t) and name == 'encoder-2' else 'old'}"))[0]
    assert "took the place of encoder-2-old" in other.text


def test_a_process_that_records_little_is_not_judged_by_one_that_records_all() -> None:
    """A hundredth of one process, everything of two: two misses of the hundred recorded are not two hundred."""

    def group(instance: str, reason: str, before: float, now: float, weight: float) -> Group:
        return Group("image", "/", "t", "", "exact", "s", instance, "miss" if reason else "hit", reason, not reason,
                     before, now, 0.0, weight)  # fmt: skip

    groups = [
        group("all", "", 90_000.0, 60_000.0, 1.0), group("all", "signature", 0.0, 30_000.0, 1.0),
        group("some", "", 20_000.0, 17_000.0, 1000.0), group("some", "evicted", 0.0, 3_000.0, 1000.0),
    ]  # fmt: skip
    rows = CauseRows(Window(0.0, 600.0), Window(600.0, 1200.0), groups, [], [], [], [], 10.0)
    assert kinds(find(rows)) == ["signature"]
    assert kinds(find(replace(rows, groups=[replace(one, weight=0.0) for one in groups]))) == ["signature", "evicted"]


def test_spans_that_came_twice_are_no_cause() -> None:
    rows = World(10).rows()
    twice = [replace(one, now=2 * one.now) if one.instance == "encoder-1" else one for one in rows.groups]
    assert find(replace(rows, groups=twice)) == []


@pytest.mark.parametrize("minutes", [-5, 5])
def test_a_clock_that_is_minutes_off(minutes: int) -> None:
    def skewed(t: float, instance: str, source: Source) -> Drawn:
        return swap_only(t + (60 * minutes if instance == "encoder-2" else 0), instance, source)

    found = find(World(11, change=skewed).rows())
    assert kinds(found) == ["signature"]
    assert found[0].where == {"instance": "encoder-2"}
    assert [one.component for one in found[0].moved] == ["model_version"]


def test_more_tenants_than_are_told_apart() -> None:
    tenants = tuple(Source(f"tenant {at}", f"/{at % 7}", 0.3, 0.9) for at in range(900))

    def change(t: float, instance: str, source: Source) -> Drawn:
        bad = after(t) and instance == "encoder-2"
        return source.rate, source.ratio * (0.3 if bad else 1.0), "signature", B if bad else A

    found = find(World(12, sources=tenants, change=change, minutes=5).rows())
    assert found[0].cause == "signature"
    assert found[0].where == {"instance": "encoder-2"}
    assert found[0].share > 0.95
    assert not [cause for cause in found if MANY in repr(cause.where) or "\\u0000" in cause.text]


def test_one_tenant_of_more_than_are_told_apart() -> None:
    """A small one, in all processes: it is found, as it is where something changed."""
    tenants = tuple(Source(f"tenant {at}", "/", 0.3, 0.9) for at in range(400))

    def change(t: float, instance: str, source: Source) -> Drawn:
        bad = after(t) and source.tenant == "tenant 7"
        return (
            source.rate * (12 if source.tenant == "tenant 7" else 1),
            source.ratio * (0.1 if bad else 1.0),
            "expired",
            A,
        )

    found = find(World(18, sources=tenants, change=change, minutes=5).rows())
    assert kinds(found) == ["expired"]
    assert found[0].where == {"tenant": "tenant 7"}


def two_models(rows: CauseRows, detail: str = "") -> CauseRows:
    """Each process has another model for pictures, too, that is asked a little less from 02:15 on, as it happens."""
    other = {"model_version": "dino-2", "dtype": "float16", "modality": "image"}
    more = [
        SignatureRow("encoders", f"encoder-{at}", "image", "d" * 16, other, 90_000.0, 10.0, 89_000.0, 9_000.0,
                     QUARTER_PAST_TWO - 900, QUARTER_PAST_TWO + 900)
        for at in (1, 2, 3)
    ]  # fmt: skip
    return replace(
        rows, signatures=[*rows.signatures, *more], examples=[replace(one, detail=detail) for one in rows.examples]
    )


@pytest.mark.parametrize("detail", ["", f"{A} is stored: model_version differs", f"stored under {A}"])
def test_another_model_of_the_process_is_not_what_was_replaced(detail: str) -> None:
    first = find(two_models(World(13, change=swap_only).rows(), detail))[0]
    assert [(one.was, one.now) for one in first.moved] == [("clip-1.4.0", "clip-1.5.0")]


def test_two_models_replaced_at_once_are_not_guessed_at() -> None:
    rows = two_models(World(13, change=swap_only).rows())
    gone = [replace(one, hits=0.0, misses=0.0) if one.signature == "d" * 16 else one for one in rows.signatures]
    first = find(replace(rows, signatures=gone))[0]
    assert first.moved == ()
    assert "see in an example" in first.text


def test_fields_that_were_not_recorded_did_not_move() -> None:
    world = World(14, change=swap_only)
    del world.fields[A]
    first = find(world.rows())[0]
    assert first.moved == ()
    assert "(none)" not in first.text


def test_details_that_differ_are_not_told_as_one() -> None:
    def down(t: float, instance: str, source: Source) -> Drawn:
        return source.rate, source.ratio * (0.5 if after(t) else 1.0), "tier-down", A

    rows = World(15, change=down).rows()
    tiers = {"shop": "disk: refused", "search": "valkey: refused"}
    some = [replace(one, detail=tiers.get(one.tenant, "")) for one in rows.examples]
    text = find(replace(rows, examples=some))[0].text
    assert "disk: refused" in text
    assert "valkey: refused" in text


def test_evictions_in_another_process_are_not_the_floods_doing() -> None:
    def both(t: float, instance: str, source: Source) -> Drawn:
        if source.tenant == "batch":
            here = instance == "encoder-1"
            return source.rate * (20 if after(t) else 1) * here, 0.02 if after(t) else 0.55, "absent", A
        bad = after(t, 300) and instance == "encoder-2"
        return source.rate, source.ratio * (0.4 if bad else 1.0), "evicted", A

    found = {cause.cause: cause for cause in find(World(16, change=both).rows())}
    assert found["evicted"].where == {"instance": "encoder-2"}
    assert "after the flood" not in found["evicted"].text or "instance" not in found["flood"].where
    assert "which fills" not in found["evicted"].text


@pytest.mark.parametrize("name", ["\x1b[2J", "\u200f\u202e", "x" * 10_000, "<script>alert(1)</script>", "\x00", "a\nb"])
def test_a_name_of_any_kind(name: str) -> None:
    def flood(t: float, instance: str, source: Source) -> Drawn:
        return source.rate * (1.0 if source.tenant != name or after(t) else 0.05), source.ratio, "absent", A

    first = find(World(17, change=flood, sources=(*INTERACTIVE, Source(name, "/", 9.0, 0.05))).rows())[0]
    assert first.where["tenant"] == name
    assert first.text.isprintable()
    assert len(first.text) < 800


def test_silence_is_no_height_to_fall_from() -> None:
    hits = [[60.0, 240.0]] * 40 + [[0.0, 0.0]] * 20 + [[60.0, 240.0]] * 40
    series = [Tally(60.0 * at, good, bad, good + bad) for at, (good, bad) in enumerate(hits)]
    asked = Window(3000.0, 6000.0)
    assert dip(series, asked, 60.0) == (Window(0.0, 3000.0), asked)


def test_steps_of_those_who_are_counted_together() -> None:
    """A step names its tenant; the book may have put it with others."""
    groups = [
        Group(
            "image", "/", f"t{at}", "", "exact", "s", "one", "miss" if reason else "hit", reason, not reason, *both, 0.0
        )
        for at in range(3000)
        for reason, both in (("", (30.0, 10.0)), ("evicted", (0.0, 20.0)))
    ]
    steps = [StepRow(60.0 * at, 60.0, f"t{at}", "one", "", 3000.0) for at in range(10)]
    steps += [StepRow(600.0 + 60 * at, 60.0, f"t{at}", "one", "evicted", 6000.0 * (at >= 4)) for at in range(10)]
    first = find(CauseRows(Window(0.0, 600.0), Window(600.0, 1200.0), groups, steps, [], [], []))[0]
    assert first.cause == "evicted"
    assert first.since == 840.0
