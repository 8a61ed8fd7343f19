"""Numbers and base64 of one text, conversations, pictures, and the bytes that are sent again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.server.batch_world import ModelUpstream, asks, outcome, pack, proxied, settled, told, vector

from mmcache import Cache
from mmcache.server.batches import State
from mmcache.server.config import RouteRules
from mmcache.server.embeddings import ROUTE
from mmcache.server.exchange import Answered, Directives, Proxy


def ask(proxy: Proxy, body: Any, **options: Any) -> Answered:
    return asyncio.run(settled(proxy, ROUTE(asks(body, **options), proxy)))


def first(answered: Answered) -> Any:
    return told(answered)["data"][0]["embedding"]


def test_vllm_writes_float32_in_both_forms_so_one_block_gives_both() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache, kind="vllm")
        exact = vector("m", "a")
        assert first(ask(proxy, {"model": "m", "input": "a", "encoding_format": "base64"})) == pack(exact)
        assert first(ask(proxy, {"model": "m", "input": "a"})) == exact
        assert first(ask(proxy, {"model": "m", "input": ["b", "a"]})) == vector("m", "b")
        packed = ask(proxy, {"model": "m", "input": ["b", "a"], "encoding_format": "base64"})
        assert [one["embedding"] for one in told(packed)["data"]] == [pack(vector("m", "b")), pack(exact)]
        assert len(upstream.seen) == 2


def test_elsewhere_each_form_is_a_block_of_its_own() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        upstream.write = lambda numbers: [float(str(np.float32(number))) for number in numbers]
        shortest = [float(str(np.float32(number))) for number in vector("m", "a")]
        for _ in range(2):
            assert first(ask(proxy, {"model": "m", "input": "a"})) == shortest
            assert first(ask(proxy, {"model": "m", "input": "a", "encoding_format": "base64"})) == pack(
                vector("m", "a")
            )
        assert len(upstream.seen) == 2


def test_what_is_called_vllm_and_writes_other_numbers_is_not_stored() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache, kind="vllm")
        upstream.write = lambda numbers: [round(number, 3) for number in numbers]
        for _ in range(2):
            assert ask(proxy, {"model": "m", "input": "a"}).verdict.reason == "odd-reply"
        assert len(upstream.seen) == 2


def test_a_server_that_answers_base64_with_numbers_is_given_back_so() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        upstream.spoil = lambda r: {
            **r, "data": [one | {"embedding": vector("m", "a")} for one in r["data"]],
        }  # fmt: skip
        for _ in range(2):
            assert first(ask(proxy, {"model": "m", "input": "a", "encoding_format": "base64"})) == vector("m", "a")
        assert len(upstream.seen) == 1


def talk(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def test_conversations_are_items() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache, kind="vllm")
        upstream.answered = batched(upstream)  # type: ignore[method-assign]
        ask(proxy, {"model": "m", "messages": [talk("a"), talk("b")]})
        answered = ask(proxy, {"model": "m", "messages": [talk("c"), talk("a")], "add_generation_prompt": False})
        assert outcome(answered) == ("miss", "0", "2")  # another field: other blocks
        answered = ask(proxy, {"model": "m", "messages": [talk("c"), talk("a")]})
        assert outcome(answered) == ("partial", "1", "1")
        assert upstream.seen[-1]["messages"] == [talk("c")]
        assert ask(proxy, {"model": "m", "messages": [{**talk("a")[0], "name": "x"}]}).verdict.outcome == "miss"
        assert ask(proxy, {"model": "m", "messages": talk("a")}).verdict.outcome == "hit"


def batched(upstream: ModelUpstream) -> Any:
    one = type(upstream).answered

    def answered(path: str, request: dict[str, Any]) -> dict[str, Any]:
        given = request["messages"]
        items = given if isinstance(given[0], list) else [given]
        return one(upstream, path, {"model": request["model"], "input": [json.dumps(item) for item in items]})

    return answered


# The bytes that are sent again ---------------------------------------------------------------------------------------


def test_a_repeat_is_the_same_bytes_while_every_block_holds() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        body = {"model": "m", "input": ["a", "b"]}
        answers = [ask(proxy, body) for _ in range(4)]
        memo = State.of(proxy).memo
        assert len(memo) == 1
        assert answers[1].body == answers[2].body == answers[3].body
        assert [outcome(each) for each in answers[1:]] == [("hit", "2", "0")] * 3
        assert answers[3].body is answers[2].body
        assert answers[3].verdict.age_seconds is not None
        key = next(iter(memo._known.values())).blocks[0][0]
        cache.invalidate(key)
        assert outcome(ask(proxy, body)) == ("partial", "1", "1")
        assert len(upstream.seen) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "other"}, {"path": "/embeddings"}, {"directives": Directives(no_cache=True)},
        {"directives": Directives(max_age=-1.0)}, {"rules": RouteRules(mode="shadow")},
    ],
)  # fmt: skip
def test_a_repeat_is_no_repeat_for_others(changes: dict[str, Any]) -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        body = {"model": "m", "input": "a"}
        for _ in range(3):
            ask(proxy, body)
        ask(proxy, body, **changes)
        assert len(upstream.seen) == 2


def test_nothing_is_sent_again_after_its_lifetime_or_a_newer_value() -> None:
    with Cache() as cache:
        proxy, upstream = proxied(cache)
        body = {"model": "m", "input": "a"}
        for _ in range(3):
            ask(proxy, body)
        upstream.spoil = lambda r: {**r, "data": [one | {"embedding": [1.0, 2.0]} for one in r["data"]]}
        ask(proxy, body, directives=Directives(no_cache=True))
        assert first(ask(proxy, body)) == [1.0, 2.0]
        cache.switch("shadow")
        ask(proxy, body)
        assert len(upstream.seen) == 3


def test_repeats_are_bounded_in_bytes() -> None:
    with Cache() as cache:
        proxy, _ = proxied(cache)
        memo = State.of(proxy).memo
        memo._limit = 20_000
        for number in range(40):
            for _ in range(2):
                ask(proxy, {"model": "m", "input": f"text {number}"})
            assert memo.bytes <= 20_000
        assert 1 < len(memo) < 40
        assert memo.bytes == sum(known.size for known in memo._known.values())


def test_hits_of_repeats_are_counted(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        proxy, _ = proxied(cache)
        ask(proxy, {"model": "m", "input": "a"})
        before = cache.stats().hits
        for _ in range(5):
            ask(proxy, {"model": "m", "input": "a"})
        assert cache.stats().hits == before + 5
