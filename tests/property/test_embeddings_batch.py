"""Any batches: what comes back is what the upstream gives for the whole of each, and it is asked for each item once."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.batch_world import ModelUpstream, asks, proxied, settled, told

from mmcache import Cache
from mmcache.server.embeddings import ROUTE

ITEMS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c", "é", "e\u0301", "", "\U0001f600"]), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=1, max_size=4),
    st.sampled_from(["a", "b"]),
    st.lists(st.integers(0, 3), min_size=1, max_size=2),
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "n"]), "input": ITEMS},
    optional={
        "encoding_format": st.sampled_from(["float", "base64"]),
        "dimensions": st.sampled_from([4, 8]),
        "user": st.sampled_from(["u", "v"]),
    },
)


def distinct(request: dict[str, Any], packed: bool) -> set[tuple[Any, ...]]:
    found = request["input"]
    many = found if isinstance(found, list) and not isinstance(found[0], int) else [found]
    form = packed or request.get("encoding_format") == "base64"
    return {
        (request["model"], form, request.get("dimensions"), str(type(one)), str(one)) for one in many
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=8), st.sampled_from(["openai", "vllm"]))
def test_one_after_another(requests: list[dict[str, Any]], kind: str) -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache, kind)
        known: set[tuple[Any, ...]] = set()
        used = 0
        for request in requests:
            before = len(upstream.seen)
            answered = asyncio.run(settled(proxy, ROUTE(asks(request), proxy)))
            found, whole = told(answered), ModelUpstream().answered("/v1/embeddings", request)
            assert found["data"] == whole["data"]
            assert (found["model"], found["object"]) == (whole["model"], "list")
            wanted = distinct(request, kind == "vllm")
            new = upstream.seen[before:]
            asked_for = set().union(*(distinct(each, kind == "vllm") for each in new)) if new else set()
            assert asked_for == wanted - known
            assert len(new) == bool(wanted - known)
            known |= wanted
            used += found["usage"]["prompt_tokens"]
            assert used == upstream.billed
            outcome = "hit" if not asked_for else "miss" if asked_for == wanted else "partial"
            assert answered.verdict.outcome == outcome


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), min_size=2, max_size=6))
def test_all_at_once(batches: list[list[str]]) -> None:
    async def main(cache: Cache) -> None:
        proxy, upstream = proxied(cache)
        upstream.before = lambda: asyncio.sleep(0)
        requests = [{"model": "m", "input": batch} for batch in batches]
        answers = await asyncio.gather(*(ROUTE(asks(request), proxy) for request in requests))
        for request, answered in zip(requests, answers, strict=True):
            assert told(answered)["data"] == ModelUpstream().answered("/v1/embeddings", request)["data"]
        computed = [text for request in upstream.seen for text in request["input"]]
        assert sorted(computed) == sorted(set().union(*batches))
        assert sum(told(each)["usage"]["prompt_tokens"] for each in answers) == upstream.billed

    with Cache() as cache:
        asyncio.run(main(cache))
