"""The openai client asks for embeddings through the whole proxy, over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from tests.unit.server.batch_world import ModelUpstream, vector
from tests.unit.server.conftest import World

from mmcache import Cache
from mmcache.server.config import RouteRules

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def embeds(world: World) -> ModelUpstream:
    """Let the upstream embed and rank."""
    from tests.unit.server.upstream import reply

    model = ModelUpstream()

    async def handle(asked: Any, send: Any) -> None:
        request = json.loads(asked.body)
        model.seen.append(request)
        await reply(send, 200, model.answered(asked.path, request))

    for path in ("/v1/embeddings", "/v1/rerank", "/score"):
        world.upstream.on(path, handle)
    return model


def client(world: World, key: str = "sk-one") -> Any:
    return openai.OpenAI(base_url=f"{world.address}/v1", api_key=key, max_retries=0)


def routes() -> Any:
    from mmcache.server import embeddings, rerank

    return embeddings.ROUTES | rerank.ROUTES


def test_batches_by_the_openai_client(proxied: Callable[..., World], tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        world = proxied(routes(), cache)
        model, ask = embeds(world), client(world)
        first = ask.embeddings.create(model="small", input=["a", "b"])
        assert first.usage.prompt_tokens == model.billed
        for _ in range(3):
            raw = ask.embeddings.with_raw_response.create(model="small", input=["b", "c", "a", "c"])
            found = raw.parse()
            assert [one.index for one in found.data] == [0, 1, 2, 3]
            expected = [vector("small", text) for text in "bcac"]
            assert np.array_equal([one.embedding for one in found.data], expected)
        assert [request["input"] for request in model.seen] == [["a", "b"], ["c"]]
        assert raw.headers["x-mmcache"].startswith("hit; ")
        assert "hits=3; misses=0" in raw.headers["x-mmcache"]
        assert "age" in raw.headers
        floats = ask.embeddings.create(model="small", input="a", encoding_format="float")
        assert floats.data[0].embedding == vector("small", "a")
        other = client(world, "sk-two").embeddings.with_raw_response.create(model="small", input=["a", "b"])
        assert other.headers["x-mmcache"].startswith("miss; reason=absent")


def test_a_key_that_is_revoked_gets_nothing_stored(proxied: Callable[..., World]) -> None:
    world = proxied(routes(), trust=_trust(0.0))
    embeds(world)
    ask = client(world)
    for _ in range(3):
        ask.embeddings.create(model="small", input="a")
    world.upstream.refused.add(b"Bearer sk-one")
    with pytest.raises(openai.AuthenticationError):
        ask.embeddings.create(model="small", input="a")


def _trust(seconds: float) -> Any:
    from mmcache.server.config import TrustRules

    return TrustRules(authority_seconds=seconds)


def test_many_clients_at_once_cause_one_request(proxied: Callable[..., World]) -> None:
    world = proxied(routes())
    model, start, found = embeds(world), Barrier(8), []

    def run() -> None:
        ask = client(world)
        start.wait()
        found.append(ask.embeddings.create(model="small", input=["x", "y"]))

    threads = [Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [text for request in model.seen for text in request["input"]]
    assert sorted(texts) == ["x", "y"]
    assert sum(each.usage.prompt_tokens for each in found) == model.billed


def test_what_cannot_be_cached_is_answered_by_the_upstream(proxied: Callable[..., World]) -> None:
    world = proxied(routes())
    model = embeds(world)
    body = {"model": "small", "input": ["a"], "late_chunking": True}
    answers = [world.client.post("/v1/embeddings", json=body, headers=KEY) for _ in range(2)]
    assert [each.headers["x-mmcache"] for each in answers] == ["bypass; reason=unknown-field"] * 2
    assert model.seen == [body, body]


def test_pairs(proxied: Callable[..., World]) -> None:
    world = proxied(routes(), routes_rules={"/v1/rerank": RouteRules(pairs=True)})
    model = embeds(world)
    for documents, outcome in ((["a", "b"], "miss"), (["b", "c"], "partial"), (["c", "a", "b"], "hit")):
        body = {"model": "small", "query": "q", "documents": documents, "top_n": 2}
        answer = world.client.post("/v1/rerank", json=body, headers=KEY)
        assert answer.headers["x-mmcache"].startswith(outcome)
        assert answer.json()["results"] == ModelUpstream().answered("/v1/rerank", body)["results"]
    assert [request["documents"] for request in model.seen] == [["a", "b"], ["c"]]


KEY = {"authorization": "Bearer sk-one"}
