"""Embeddings through the proxy: what goes upstream, what comes back, what is stored, and what never is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.batch_world import ModelUpstream, asks, outcome, proxied, settled, told, vector

from mmcache import Cache
from mmcache.model.errors import ProxyError
from mmcache.server.config import RouteRules
from mmcache.server.embeddings import ROUTE
from mmcache.server.exchange import Answered, BypassedError, Directives, Proxy


@pytest.fixture
def world() -> Iterator[tuple[Cache, Proxy, ModelUpstream]]:
    with Cache() as cache:
        yield cache, *proxied(cache)


def ask(proxy: Proxy, body: Any, **options: Any) -> Answered:
    return asyncio.run(settled(proxy, ROUTE(asks(body, **options), proxy)))


def numbers(answered: Answered) -> list[Any]:
    data = told(answered)["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    assert {one["object"] for one in data} == {"embedding"}
    return [one["embedding"] for one in data]


def body(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(texts), **more}


def test_only_what_is_missing_goes_upstream_once_and_in_order(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    first = ask(proxy, body("a", "b"))
    assert outcome(first) == ("miss", "0", "2")
    assert first.verdict.reason == "absent"
    mixed = ask(proxy, body("c", "b", "c", "d", "a", user="u"))
    assert outcome(mixed) == ("partial", "2", "2")
    assert upstream.seen[1] == body("c", "d", user="u")
    assert numbers(mixed) == [vector("m", text) for text in "cbcda"]
    again = ask(proxy, body("d", "c", "b", "a"))
    assert outcome(again) == ("hit", "4", "0")
    assert numbers(again) == [vector("m", text) for text in "dcba"]
    assert len(upstream.seen) == 2
    assert again.model == "m"


def test_a_first_request_goes_and_comes_byte_for_byte(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    raw = b'{ "input" : ["caf\\u00e9", "b"],"model":"m" , "dimensions": 4 }'
    answered = ask(proxy, raw)
    assert upstream.bodies == [raw]
    assert told(answered)["id"] == "embd-1"
    assert (b"x-upstream", b"yes") in answered.headers
    partial = ask(
        proxy, b'{"encoding_format": "float", "input":["b", "\\u0063"],"model":"m","dimensions":4,"user":1.50}'
    )
    assert (
        upstream.bodies[1] == b'{"encoding_format":"float","input":["\\u0063"],"model":"m","dimensions":4,"user":1.50}'
    )
    assert told(partial)["id"] == "embd-2"


def test_usage_is_what_the_upstream_counted_and_never_twice(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    alone = ask(proxy, body("alone"))
    spent = told(alone)["usage"]["prompt_tokens"]
    mixed = ask(proxy, body("alone", "b", "c"))
    assert mixed.verdict.saved_tokens == spent
    hit = ask(proxy, body("alone", "b", "c"))
    assert told(hit)["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert hit.verdict.saved_tokens == spent  # of b and c only the sum was told
    assert sum(told(each)["usage"]["prompt_tokens"] for each in (alone, mixed, hit)) == upstream.billed


@pytest.mark.parametrize(
    "other",
    [
        {"input": "A"}, {"input": "a "}, {"input": "\u00e9"}, {"input": "e\u0301"}, {"input": [97]}, {"input": [[97]]},
        {"input": [{"text": "a"}]}, {"model": "n"}, {"dimensions": 4}, {"encoding_format": "base64"},
        {"normalize": True}, {"truncate_prompt_tokens": 3}, {"input_type": "query"}, {"cache_salt": "x"},
        {"add_special_tokens": False}, {"task": "retrieval"}, {"use_activation": False}, {"prompt_name": "query"},
    ],
)  # fmt: skip
def test_whatever_may_change_a_vector_is_another_block(
    world: tuple[Cache, Proxy, ModelUpstream], other: dict[str, Any]
) -> None:
    _, proxy, upstream = world
    ask(proxy, {"model": "m", "input": "a"})
    ask(proxy, {"model": "m", "input": "\u00e9" if other.get("input") == "e\u0301" else "a"})
    ask(proxy, {"model": "m", "input": "a"} | other)
    assert upstream.seen[-1] == {"model": "m", "input": "a"} | other


def test_tenants_versions_and_paths_share_nothing(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    cache, proxy, upstream = world
    ask(proxy, body("a"))
    ask(proxy, body("a"), tenant="other")
    ask(proxy, body("a"), path="/embeddings")
    assert len(upstream.seen) == 3
    newer, behind = proxied(cache, version="2")
    ask(newer, body("a"))
    assert len(behind.seen) == 1


def test_a_string_a_list_of_one_and_any_user_share_a_block(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    ask(proxy, {"model": "m", "input": "a"})
    assert ask(proxy, {"model": "m", "input": ["a"], "user": "u", "encoding_format": "float"}).verdict.outcome == "hit"
    ask(proxy, {"model": "m", "input": [1, 2]})
    assert ask(proxy, {"model": "m", "input": [[1, 2]], "priority": 3}).verdict.outcome == "hit"
    assert len(upstream.seen) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"late_chunking": True}, "unknown-field"),
        ({"encoding_format": "bytes"}, "encoding-format"),
        ({"encoding_format": "base64", "embed_dtype": "float16"}, "encoding-format"),
        ({"endianness": "big"}, "encoding-format"),
        ({"input": []}, "malformed"),
        ({"input": ["a", 1]}, "malformed"),
        ({"input": [True]}, "malformed"),
        ({"input": [[]]}, "malformed"),
        ({"input": 7}, "malformed"),
        ({"input": [{"text": "a", "more": 1}]}, "unknown-part"),
        ({"input": [{"image": "https://example.org/a.png"}]}, "remote-media"),
        ({"model": ""}, "no-model"),
        ({"messages": [{"role": "user", "content": "a"}]}, "malformed"),
    ],
)
def test_what_is_not_understood_is_not_cached(
    world: tuple[Cache, Proxy, ModelUpstream], changes: dict[str, Any], reason: str
) -> None:
    _, proxy, upstream = world
    with pytest.raises(BypassedError) as caught:
        ask(proxy, {"model": "m", "input": "a"} | changes)
    assert caught.value.reason == reason
    assert upstream.seen == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: {**r, "data": r["data"][:-1]},
        lambda r: {**r, "data": r["data"] + r["data"][:1]},
        lambda r: {**r, "data": r["data"][::-1]},
        lambda r: {**r, "data": [one | {"index": 0} for one in r["data"]]},
        lambda r: {**r, "data": [{k: v for k, v in one.items() if k != "index"} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"embedding": []} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"embedding": [None, 1.0]} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"embedding": "AAAA"} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"object": "other"} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"more": 1} for one in r["data"]]},
        lambda r: {**r, "data": [one | {"embedding": one["embedding"][: n + 1]} for n, one in enumerate(r["data"])]},
        lambda r: {**r, "warning": "quota"},
        lambda r: {k: v for k, v in r.items() if k != "data"},
        lambda r: json.dumps(r).replace("[0.", "[NaN, 0.", 1).encode(),
        lambda r: json.dumps(r).replace("[0.", "[1e999, 0.", 1).encode(),
        lambda r: json.dumps(r).encode()[:-3],
        lambda r: b"",
        lambda r: [r],
    ],
)
def test_an_odd_reply_is_passed_on_and_nothing_of_it_is_stored(
    world: tuple[Cache, Proxy, ModelUpstream], spoil: Any
) -> None:
    cache, proxy, upstream = world
    upstream.spoil = spoil
    answered = ask(proxy, body("a", "b"))
    assert (answered.status, answered.verdict.outcome, answered.verdict.reason) == (200, "bypass", "odd-reply")
    expected = spoil(ModelUpstream().answered("/v1/embeddings", body("a", "b")) | {"id": "embd-1"})
    assert answered.body == (expected if isinstance(expected, bytes) else json.dumps(expected).encode())
    assert cache.stats().tiers["memory"].blocks == 0
    upstream.spoil = lambda reply: reply
    assert outcome(ask(proxy, body("a", "b"))) == ("miss", "0", "2")
    upstream.spoil = spoil
    with pytest.raises(BypassedError, match="odd-reply"):  # the frame asks for all of it then
        ask(proxy, body("a", "c", "d"))


def test_other_dimensions_than_were_asked_for_are_not_stored(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    upstream.spoil = lambda r: {**r, "data": [one | {"embedding": one["embedding"][:2]} for one in r["data"]]}
    assert ask(proxy, body("a", dimensions=4)).verdict.reason == "odd-reply"


def test_errors_are_passed_on_and_not_stored(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    ask(proxy, body("a"))
    upstream.status = 429
    answered = ask(proxy, body("a", "b"))
    assert (answered.status, answered.body) == (429, b'{"error":{"message":"no"}}')
    upstream.status = 200
    assert outcome(ask(proxy, body("a", "b"))) == ("partial", "1", "1")


def test_an_upstream_that_forbids_it_is_obeyed(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    upstream.headers = [(b"cache-control", b"no-store")]
    ask(proxy, body("a"))
    assert ask(proxy, body("a")).verdict.outcome == "bypass"
    assert len(upstream.seen) == 2


def test_a_model_exchanged_under_its_name_is_never_mixed(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    first = ask(proxy, body("a", "b"))
    upstream.model = "m-2"
    answered = ask(proxy, body("a", "c"))
    assert numbers(answered) == [vector("m-2", "a"), vector("m-2", "c")]
    assert answered.verdict.outcome == "miss"
    mixed = ask(proxy, body("a", "b"))  # stored are both
    assert numbers(mixed) == [vector("m-2", "a"), vector("m-2", "b")]
    assert mixed.verdict.reason == "signature"
    billed = [told(each)["usage"]["prompt_tokens"] for each in (first, answered, mixed)]
    assert sum(billed) == upstream.billed


def test_directives(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    with pytest.raises(ProxyError) as caught:
        ask(proxy, body("a"), directives=Directives(only_if_cached=True))
    assert caught.value.status == 504
    with pytest.raises(BypassedError):
        ask(proxy, body("a"), directives=Directives(no_store=True))
    ask(proxy, body("a"))
    assert ask(proxy, body("a"), directives=Directives(only_if_cached=True)).verdict.outcome == "hit"
    assert ask(proxy, body("a"), directives=Directives(max_age=60)).verdict.outcome == "hit"
    with pytest.raises(ProxyError):
        ask(proxy, body("a"), directives=Directives(only_if_cached=True), rules=RouteRules(mode="shadow"))
    fresh = ask(proxy, body("a", "b"), directives=Directives(no_cache=True))
    assert (outcome(fresh), fresh.verdict.reason) == (("miss", "0", "2"), "expired")
    assert upstream.seen[-1] == body("a", "b")
    assert outcome(ask(proxy, body("a", "b"))) == ("hit", "2", "0")


def test_shadow_asks_for_all_and_compares(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    shadow = RouteRules(mode="shadow")
    ask(proxy, body("a"))
    answered = ask(proxy, body("a", "b", "b"), rules=shadow)
    assert numbers(answered) == [vector("m", text) for text in "abb"]
    assert (answered.verdict.outcome, answered.verdict.details["compared"]) == ("miss", "1")
    assert proxy.kept["compared"] == [True]
    upstream.spoil = lambda r: {**r, "data": [one | {"embedding": one["embedding"][::-1]} for one in r["data"]]}
    answered = ask(proxy, body("a", "b"), rules=shadow)
    assert answered.verdict.details["differed"] == "2"
    assert float(answered.verdict.details["alike"]) < 1
    assert outcome(ask(proxy, body("a", "b"))) == ("miss", "0", "2")  # what differed is gone


def test_sampled_hits_are_computed_and_compared() -> None:
    with Cache(verify_share=1.0) as cache:
        proxy, upstream = proxied(cache)
        for _ in range(3):
            assert numbers(ask(proxy, body("a"))) == [vector("m", "a")]
        assert len(upstream.seen) == 3
        assert proxy.kept["compared"] == [True, True]


def test_the_kill_switch_steps_aside(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    cache, proxy, _ = world
    for _ in range(3):
        ask(proxy, body("a"))
    cache.switch("off")
    with pytest.raises(BypassedError):
        ask(proxy, body("a"))
    cache.switch("on")
    assert ask(proxy, body("a")).verdict.outcome == "hit"


def test_a_large_batch(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    texts = [f"text {number}" for number in range(300)]
    ask(proxy, body(*texts[:100]))
    for outcome_now in (("partial", "100", "200"), ("hit", "300", "0")):
        answered = ask(proxy, body(*texts))
        assert outcome(answered) == outcome_now
        assert numbers(answered) == [vector("m", text) for text in texts]
    assert [len(request["input"]) for request in upstream.seen] == [100, 200]


def test_limits(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, _ = world
    with pytest.raises(BypassedError, match="too-many-inputs"):
        ask(proxy, body("a", "b", "c"), rules=RouteRules(most_inputs=2))


def test_lifetimes_of_the_rules_count(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world
    ask(proxy, body("a"), rules=RouteRules(ttl_seconds=0))
    ask(proxy, body("a"), rules=RouteRules(ttl_seconds=0))
    assert len(upstream.seen) == 2


def test_who_asks_the_same_at_the_same_time_shares_one_request(world: tuple[Cache, Proxy, ModelUpstream]) -> None:
    _, proxy, upstream = world

    async def main() -> list[Any]:
        arrived, release = asyncio.Event(), asyncio.Event()

        async def before() -> None:
            arrived.set()
            await release.wait()

        upstream.before = before
        waiting = [asyncio.create_task(ROUTE(asks(body("a", "b")), proxy))]
        await arrived.wait()
        waiting += [asyncio.create_task(ROUTE(asks(body("b", "a", "c")), proxy)) for _ in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        waiting[0].cancel()  # its client goes; others wait for what it asked
        release.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    gone, *others = asyncio.run(main())
    assert isinstance(gone, asyncio.CancelledError)
    assert sorted(text for request in upstream.seen for text in request["input"]) == ["a", "b", "c"]
    for each in others:
        assert numbers(each) == [vector("m", text) for text in "bac"]
    assert sum(told(each)["usage"]["prompt_tokens"] for each in others) < upstream.billed


def test_hits_survive_a_restart(tmp_path: Path) -> None:
    for expected in ("miss", "hit"):
        with Cache(tmp_path) as cache:
            proxy, _ = proxied(cache)
            answered = ask(proxy, body("a", "b"))
            assert answered.verdict.outcome == expected
            assert numbers(answered) == [vector("m", "a"), vector("m", "b")]
            cache.flush()
