"""Sums over any window, filter and step are what the spans say, whatever is counted already and whatever came late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.dashboard.store_world import HOUR_AGO, Sent, a_store, lookup, put, settled

from mmcache.dashboard import overview
from mmcache.dashboard.asking import Question
from mmcache.dashboard.rows import REASONS, Window
from mmcache.dashboard.store import Store

START = HOUR_AGO - 5 * 3600
EDGES = (0.0, 9.999999, 10.0, 59.999999, 60.0, 299.999999, 300.0, 3599.999999, 3600.0, 7200.0, 10799.999999)
TIMES = st.one_of(st.sampled_from(EDGES), st.floats(0, 3 * 3600 - 1).map(lambda at: round(at, 6)))
LOOKUPS = st.builds(
    lambda at, reason, weight, tenant, key: lookup(START + at, reason, weight, tenant=tenant, key=f"{key:016x}"),
    TIMES, st.sampled_from(["", *REASONS]), st.sampled_from([1.0, 2.5, 100.0]), st.sampled_from("ab"),
    st.integers(1, 3),
)  # fmt: skip
WINDOWS = st.tuples(TIMES, TIMES).map(sorted).filter(lambda both: both[0] < both[1])


def expected(spans: list[Sent], since: float, until: float, tenant: str | None, key: int | None) -> list[float]:
    """Hits and misses, the plain way."""
    found = [0.0, 0.0]
    for one in spans:
        said = one.attributes
        wanted = tenant in (None, said.get("cache.tenant")) and (
            key is None or said.get("cache.key.hash") == f"{key:016x}"
        )
        if wanted and since <= one.at < until:
            found[0 if said["cache.hit"] else 1] += said.get("cache.sampling.weight", 1.0)
    return found


def totals(store: Store, question: Question, points: int) -> tuple[float, float, list[float], float]:
    """From, until, hits and misses of the ratio; misses by reason."""

    def both(view: Any) -> Any:
        return overview.ratio(view, question, None, points), overview.reasons(view, question, points)

    ratio, reasons = store.read(store.cursor(), both)
    (series,) = ratio["series"]
    missed = sum(map(sum, reasons["reasons"].values()))
    until = ratio["t"][-1] + ratio["step"]
    return ratio["t"][0], until, [sum(series["hits"]), sum(series["misses"])], missed


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(LOOKUPS, min_size=1, max_size=12), st.lists(LOOKUPS, max_size=4), WINDOWS,
    st.sampled_from([1, 7, 60, 1000]), st.sampled_from([None, "a"]), st.sampled_from([None, None, 2]),
)  # fmt: skip
def test_sums_are_what_the_spans_say(
    early: list[Sent], late: list[Sent], window: list[float], points: int, tenant: str | None, key: int | None
) -> None:
    filters = {} if tenant is None else {"tenant": (tenant,)}
    question = Question(Window(START + window[0], START + window[1]), filters, () if key is None else (key,))

    def check(spans: list[Sent]) -> None:
        since, until, found, missed = totals(store, question, points)
        assert since <= question.window.start < question.window.end <= until
        assert found == pytest.approx(expected(spans, since, until, tenant, key))
        assert missed == pytest.approx(found[1])

    with a_store() as store:
        put(store, *early)
        check(early)
        more = [lookup(START + 4 * 3600)]
        put(store, *more)  # what came before it may be counted
        settled(store)
        check(early + more)
        if late:
            put(store, *late)
            check(early + more + late)
            settled(store)
            check(early + more + late)
