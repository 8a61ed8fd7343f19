"""What the store counts is what its spans say: before a slice is closed, after it, and when more comes later."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from tests.unit.dashboard.store_world import HOUR_AGO, Sent, a_store, lookup, put, settled

from mmcache.dashboard import hot, overview
from mmcache.dashboard.asking import Question
from mmcache.dashboard.rows import REASONS, Window
from mmcache.dashboard.store import Store

START = HOUR_AGO - 3 * 3600
END = START + 3 * 3600
ALL = Window(START, END)


def traffic(seed: int, count: int) -> list[Sent]:
    """Lookups over three hours, and spans that are none."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        said = {
            "modality": rng.choice(["image", "text"]), "tenant": rng.choice("abc"), "route": rng.choice(["/x", "/y"]),
            "key": f"{rng.randrange(1, 40):016x}", "saved_ms": 250.0, "bytes": 1000,
        }  # fmt: skip
        reason = rng.choice(["", "", *REASONS])
        if reason:
            said = {name: value for name, value in said.items() if name not in ("saved_ms", "bytes")}
        one = lookup(
            START + rng.random() * 3 * 3600, reason, rng.choice([1.0, 10.0]), rng.choice(["one", "two"]), **said
        )
        made.append(one)
        if rng.random() < 0.2:
            made.append(Sent("POST /v1/embeddings", one.at, attributes={"cache.outcome": "hit"}))
    return made


def expected(spans: list[Sent], step: int, **filters: str) -> dict[int, list[float]]:
    """Hits and misses by step, the plain way."""
    found: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in spans:
        said = one.attributes
        if one.name != "cache.lookup" or any(said.get(f"cache.{name}") != value for name, value in filters.items()):
            continue
        found[int(one.at // step) * step][0 if said["cache.hit"] else 1] += said.get("cache.sampling.weight", 1.0)
    return dict(found)


def asked(store: Store, task: Any, window: Window = ALL, **filters: tuple[str, ...]) -> Any:
    return store.read(store.cursor(), lambda view: task(view, Question(window, filters)))


def ratios(store: Store, points: int, window: Window = ALL, **filters: tuple[str, ...]) -> Any:
    return asked(store, lambda view, question: overview.ratio(view, question, None, points), window, **filters)


def as_steps(found: Any) -> dict[int, list[float]]:
    (series,) = found["series"]
    rows = zip(found["t"], series["hits"], series["misses"], strict=True)
    return {t: [hits, misses] for t, hits, misses in rows if hits or misses}


@pytest.mark.parametrize("points", [3, 36, 1000])
def test_counts_are_exact_at_every_step_and_stage(points: int) -> None:
    spans = traffic(1, 600)
    with a_store() as store:
        put(store, *spans[:500])
        step = ratios(store, points)["step"]
        assert step == {3: 3600, 36: 300, 1000: 20}[points]
        assert as_steps(ratios(store, points)) == expected(spans[:500], step)
        put(store, lookup(END + 3000))  # later ones have come
        settled(store)
        assert as_steps(ratios(store, points)) == expected(spans[:500], step)
        put(store, *spans[500:])  # late: the slices are open again
        assert as_steps(ratios(store, points)) == expected(spans, step)
        settled(store)
        assert as_steps(ratios(store, points)) == expected(spans, step)
        assert as_steps(ratios(store, points, tenant=("a",), modality=("image",))) == expected(
            spans, step, tenant="a", modality="image"
        )


def test_a_slice_that_is_closed_is_read_from_its_counts() -> None:
    with a_store() as store:
        put(store, *traffic(2, 200), lookup(END + 3000))
        settled(store)
        before = as_steps(ratios(store, 36))
        cursor = store.cursor()
        cursor.execute("DELETE FROM spans")
        cursor.close()
        assert as_steps(ratios(store, 36)) == before


def test_every_miss_has_one_of_eleven_reasons_and_they_add_up() -> None:
    spans = traffic(3, 400)
    with a_store() as store:
        put(store, *spans)
        found = asked(store, lambda view, question: overview.reasons(view, question, 3))
        misses = asked(store, lambda view, question: overview.ratio(view, question, None, 3))["series"][0]["misses"]
        assert list(found["reasons"]) == list(REASONS)
        assert [sum(column) for column in zip(*found["reasons"].values(), strict=True)] == misses


def test_a_reason_of_others_is_not_lost() -> None:
    with a_store() as store:
        put(store, lookup(START, "moonlight"), lookup(START, "absent"))
        found = asked(store, lambda view, question: overview.reasons(view, question, 1))["reasons"]
        assert sum(found["other"]) == 1
        assert sum(found["absent"]) == 1


def test_a_miss_without_a_reason_is_absent_and_an_outcome_says_whether_it_hit() -> None:
    with a_store() as store:
        put(store, Sent(at=START, attributes={"cache.outcome": "near"}), Sent(at=START, attributes={}))
        (series,) = ratios(store, 3)["series"]
        assert (sum(series["hits"]), sum(series["misses"])) == (1, 1)
        found = asked(store, lambda view, question: overview.reasons(view, question, 1))["reasons"]
        assert sum(found["absent"]) == 1


def test_what_was_saved_counts_hits_by_their_weight() -> None:
    with a_store() as store:
        put(
            store, lookup(START, weight=10.0, saved_ms=500.0, bytes=100), lookup(START, "absent", saved_ms=9.0, bytes=7)
        )
        found = asked(store, lambda view, question: overview.saved(view, question, 3, 3600.0, "EUR"))
        assert (found["total_seconds"], found["total_bytes"]) == (5.0, 1000.0)
        assert (found["cost_avoided"], found["currency"], found["per_hour"]) == (5.0, "EUR", 3600.0)
        assert (
            asked(store, lambda view, question: overview.saved(view, question, 3, None, "EUR"))["cost_avoided"] is None
        )


def test_an_axis_with_many_values_shows_the_most_frequent_and_the_rest() -> None:
    spans = [lookup(START, tenant=f"t{at}", weight=float(100 - at)) for at in range(40)]
    with a_store() as store:
        put(store, *spans)
        found = asked(store, lambda view, question: overview.ratio(view, question, "tenant", 3))["series"]
        assert [one["name"] for one in found] == [*(f"t{at}" for at in range(11)), "other"]
        assert sum(sum(one["hits"]) for one in found) == sum(100 - at for at in range(40))


@pytest.mark.parametrize("closed", [False, True])
def test_the_hottest_keys_come_first_with_when_they_were_asked_for(closed: bool) -> None:
    spans = traffic(4, 500)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in spans:
        if one.name == "cache.lookup":
            weight = one.attributes.get("cache.sampling.weight", 1.0)
            sums[one.attributes["cache.key.hash"]][0 if one.attributes["cache.hit"] else 1] += weight
    with a_store() as store:
        put(store, *spans)
        if closed:
            put(store, lookup(END + 3000))
            settled(store)
        found = asked(store, lambda view, question: hot.keys(view, question, 5, 3))["keys"]
        assert len(found) == 5
        assert [[key["hits"], key["misses"]] for key in found] == [sums[key["key"]] for key in found]
        assert [sum(key["counts"]) for key in found] == sorted((sum(both) for both in sums.values()), reverse=True)[:5]
        only = asked(store, lambda view, question: hot.keys(view, question, 50, 3), tenant=("a",))["keys"]
        assert {key["tenant"] for key in only} == {"a"}


def test_the_first_of_two_spans_of_one_name_stands() -> None:
    one, again = lookup(START, tenant="a"), lookup(START, "absent", tenant="b")
    again.trace, again.span = one.trace, one.span
    with a_store() as store:
        put(store, one)
        put(store, again, one)
        assert (store.came.spans, store.came.again) == (1, 2)
        assert as_steps(ratios(store, 3)) == {int(START): [1.0, 0.0]}
