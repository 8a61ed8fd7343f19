"""Texts as numbers: bounded, and what is ours is never pushed out."""

from __future__ import annotations

import pytest
from tests.unit.dashboard.store_world import HOUR_AGO, Sent, a_store, call, lookup, put

from mmcache.dashboard import dictionary
from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.dictionary import Facets, Sheets, Words


def test_words_beyond_the_limit_are_other() -> None:
    words = Words((), most=4)
    assert [words.add(text) for text in ("a", "b", "c", "a", "")] == [2, 3, 1, 2, 0]
    assert words.find("c") is None
    assert words.texts == ["", "other", "a", "b"]


def test_sheets_beyond_the_limit_stay_with_their_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "MOST_SHEETS", 2)
    sheets = Sheets()
    assert [sheets.add(text) for text in ("{}", "{1}", "{}")] == [1, 0, 1]
    assert Sheets().add("x" * 100_000) == 0


def test_facets_beyond_the_limit_lose_their_instance_and_then_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "MOST_FACETS", 2)
    facets = Facets()
    for at in range(2, 8):
        facets.add((1, 0, at, 5, 5, 5, 5, 5, at, 2, 3))
    assert facets.rows[:2] == [(1, 0, 2, 5, 5, 5, 5, 5, 2, 2, 3), (1, 0, 3, 5, 5, 5, 5, 5, 3, 2, 3)]
    assert facets.rows[2:] == [
        (1, 0, 4, 5, 5, 5, 5, 5, 1, 2, 3), (1, 0, 5, 5, 5, 5, 5, 5, 1, 2, 3), (1, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3),
    ]  # fmt: skip
    assert len(facets.table()) == 5


async def test_whoever_sends_ever_new_names_hides_nobody_elses_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "MOST_WORDS", 12)
    monkeypatch.setattr(dictionary, "FEW", {"reason": 14, "outcome": 12})
    flood = [Sent(f"name {at}", attributes={"cache.outcome": f"o{at}", "cache.tenant": f"t{at}"}) for at in range(50)]
    odd = [lookup(HOUR_AGO, f"reason {at}") for at in range(50)]
    with a_store() as store:
        put(store, *flood, *odd)
        put(store, lookup(HOUR_AGO + 1, "tier-down", tenant="late"))
        app = Dashboard(store)
        (request,) = (await call(app, "/api/v1/requests", from_=HOUR_AGO, to=HOUR_AGO + 60, limit=1)).json["requests"]
        assert (request["name"], request["reason"], request["tenant"]) == ("cache.lookup", "tier-down", "other")
        reasons = (await call(app, "/api/v1/reasons", from_=HOUR_AGO, to=HOUR_AGO + 3600)).json["reasons"]
        assert (sum(reasons["tier-down"]), sum(reasons["other"])) == (1, 50)
        app.close()
