"""Rerank and score through the proxy: whole lists by default, pairs where the rules say so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.batch_world import ModelUpstream, asks, outcome, proxied, settled, told

from mmcache import Cache
from mmcache.server.config import RouteRules
from mmcache.server.exchange import Answered, BypassedError, Proxy
from mmcache.server.rerank import RERANK, SCORE

PAIRS = RouteRules(pairs=True)


def ask(proxy: Proxy, body: Any, path: str = "/v1/rerank", rules: RouteRules = RouteRules()) -> Answered:  # noqa: B008
    route = SCORE if path.endswith("score") else RERANK
    return asyncio.run(settled(proxy, route(asks(body, path, rules=rules), proxy)))


def ranking(*documents: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "query": "q", "documents": list(documents), **more}


def without_cost(found: Any) -> Any:
    return {name: value for name, value in found.items() if name not in ("usage", "id", "created")}


def test_by_default_a_list_is_one_block() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        for body in (ranking("a", "b", "c"), ranking("a", "b"), ranking("b", "a"), ranking("a", "b", top_n=1)):
            miss, hit = ask(proxy, body), ask(proxy, body)
            assert (miss.verdict.outcome, hit.verdict.outcome) == ("miss", "hit")
            assert without_cost(told(hit)) == without_cost(told(miss))
            assert told(hit)["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
            assert hit.verdict.saved_tokens == told(miss)["usage"]["prompt_tokens"]
        assert len(upstream.seen) == 4


def test_pairs_that_are_known_do_not_go_upstream() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        ask(proxy, ranking("a", "b"), rules=PAIRS)
        answered = ask(proxy, ranking("c", "b", "d", "a", "c", top_n=2), rules=PAIRS)
        assert upstream.seen[-1] == ranking("c", "d")
        assert outcome(answered) == ("partial", "2", "2")
        whole = ModelUpstream().answered("/v1/rerank", ranking("c", "b", "d", "a", "c", top_n=2))
        assert told(answered)["results"] == whole["results"]
        hit = ask(proxy, ranking("a", "b", "c", "d"), rules=PAIRS)
        whole = ModelUpstream().answered("/v1/rerank", ranking("a", "b", "c", "d"))
        assert hit.verdict.outcome == "hit"
        assert told(hit)["results"] == whole["results"]
        ask(proxy, ranking("a", query="other"), rules=PAIRS)
        assert len(upstream.seen) == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), st.integers(0, 7)),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_any_lists(requests: list[tuple[list[str], int]]) -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache, "vllm")  # for which a top_n of 0 means all
        used, known = 0, set[str]()
        for documents, top in requests:
            before = len(upstream.seen)
            body = ranking(*documents, top_n=top)
            found = told(ask(proxy, body, rules=PAIRS))
            assert found["results"] == ModelUpstream().answered("/v1/rerank", body)["results"]
            asked_for = [each for request in upstream.seen[before:] for each in request["documents"]]
            assert asked_for == list(dict.fromkeys(each for each in documents if each not in known))
            known |= {*documents}
            used += found["usage"]["prompt_tokens"]
            assert used == upstream.billed


@pytest.mark.parametrize("pairs", [True, False])
def test_scores(pairs: bool) -> None:
    rules = RouteRules(pairs=pairs)
    one = {"model": "m", "text_1": "q", "text_2": ["a", "b", "a"]}
    many = {"model": "m", "text_1": ["q", "r"], "text_2": ["b", "b"]}
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        for body in (one, many):
            for _ in range(2):
                found = told(ask(proxy, body, "/score", rules))
                assert found["data"] == ModelUpstream().answered("/score", body)["data"]
        assert len(upstream.seen) == 2
        if pairs:
            assert upstream.seen[0]["text_2"] == ["a", "b"]
            assert (upstream.seen[1]["text_1"], upstream.seen[1]["text_2"]) == (["r"], ["b"])


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "n"}, {"query": "Q"}, {"documents": ["a"]}, {"documents": "a"}, {"instruction": "i"}, {"top_n": 1},
        {"truncate_prompt_tokens": 3}, {"max_tokens_per_doc": 3}, {"return_documents": False}, {"cache_salt": "s"},
    ],
)  # fmt: skip
def test_whatever_may_change_a_list_is_another_block(changes: dict[str, Any]) -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        ask(proxy, ranking("a", "b"))
        ask(proxy, ranking("a", "b") | changes)
        ask(proxy, ranking("a", "b"), path="/v2/rerank")
        assert len(upstream.seen) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rank_fields": ["t"]}, "unknown-field"),
        ({"documents": []}, "malformed"),
        ({"documents": [{"text": "a"}]}, "unknown-part"),
        ({"documents": [1]}, "unknown-part"),
        ({"query": ["a", "b"]}, "malformed"),
        ({"top_n": "2"}, "malformed"),
        ({"top_n": 0}, "malformed"),
        ({"top_n": -1}, "malformed"),
        ({"top_n": True}, "malformed"),
    ],
)
def test_what_is_not_understood_is_not_cached(changes: dict[str, Any], reason: str) -> None:
    with Cache() as cache:
        proxy, _ = proxied(cache)
        with pytest.raises(BypassedError) as caught:
            ask(proxy, ranking("a", "b") | changes)
        assert caught.value.reason == reason


@pytest.mark.parametrize("rules", [PAIRS, RouteRules()])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: {**r, "results": r["results"][:-1]},
        lambda r: {**r, "results": [one | {"index": 0} for one in r["results"]]},
        lambda r: {**r, "results": [one | {"index": one["index"] + 1} for one in r["results"]]},
        lambda r: {**r, "results": [one | {"relevance_score": None} for one in r["results"]]},
        lambda r: {**r, "warnings": ["cut"]},
        lambda r: json.dumps(r).encode()[:-1],
    ],
)
def test_an_odd_reply_is_passed_on_and_not_stored(spoil: Any, rules: RouteRules) -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        upstream.spoil = spoil
        answered = ask(proxy, ranking("a", "b"), rules=rules)
        assert (answered.verdict.outcome, answered.verdict.reason) == ("bypass", "odd-reply")
        assert cache.stats().tiers["memory"].blocks == 0


def test_what_cohere_bills_is_not_billed_twice() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        upstream.spoil = lambda r: {
            "results": r["results"],
            "meta": {"api_version": {"version": 2}, "billed_units": {"search_units": 1}},
        }  # fmt: skip
        assert told(ask(proxy, ranking("a", "b")))["meta"]["billed_units"] == {"search_units": 1}
        hit = told(ask(proxy, ranking("a", "b")))
        assert hit["meta"] == {"api_version": {"version": 2}, "billed_units": {"search_units": 0}}


def test_shadow_says_how_far_scores_are_apart() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        for rules in (PAIRS, RouteRules()):
            ask(proxy, ranking("a", "b"), rules=rules)
        upstream.spoil = lambda r: {**r, "results": [one | {"relevance_score": 99.0} for one in r["results"]]}
        for pairs in (True, False):
            answered = ask(proxy, ranking("a", "b"), rules=RouteRules(mode="shadow", pairs=pairs))
            assert float(answered.verdict.details["alike"]) < 0
            assert not any(proxy.kept["compared"])
