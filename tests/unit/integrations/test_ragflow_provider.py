"""`mmcache serve` is asked with the requests that RAGFlow's OpenAI-compatible clients send, by the libraries they use.

What they send is written down in the how-to: which paths they make of "Base url", and which fields they add.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urljoin

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
pytest.importorskip("aiohttp")
pytest.importorskip("openai")
pytest.importorskip("requests")

import requests
from openai import OpenAI
from tests.unit.server.batch_world import ModelUpstream
from tests.unit.server.chat_world import completion, stream
from tests.unit.server.upstream import Upstream, reply, run, served

from mmcache import Cache
from mmcache.integrations.ragflow import addresses
from mmcache.server.app import build
from mmcache.server.asgi import close
from mmcache.server.config import ServerSettings
from mmcache.server.drain import BoundedProtocol
from mmcache.server.exchange import Proxy
from mmcache.server.upstream_http import HttpUpstream

KEY = "sk-ragflow"


@pytest.fixture
def world() -> Iterator[tuple[Upstream, dict[str, str]]]:
    """A model server, and what was entered in RAGFlow for the proxy in front of it."""
    upstream, models = Upstream(), ModelUpstream()

    async def model(asked: Any, send: Any) -> None:
        await reply(send, 200, models.answered(asked.path, json.loads(asked.body)))

    async def chat(asked: Any, send: Any) -> None:
        if json.loads(asked.body).get("stream"):
            head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            await send(head)
            await send({"type": "http.response.body", "body": b"".join(stream("A ", "cat."))})
        else:
            await reply(send, 200, completion("A cat."))

    for path in "/v1/embeddings", "/v1/rerank", "/rerank":
        upstream.on(path, model)
    upstream.on("/v1/chat/completions", chat)
    with ExitStack() as stack:
        settings = ServerSettings(stack.enter_context(served(upstream)))
        cache = stack.enter_context(Cache(memory="16MiB"))
        frame = build(Proxy(cache, HttpUpstream(settings), settings))
        address = stack.enter_context(served(frame, BoundedProtocol))
        stack.callback(run, close, frame.live.proxy)
        yield upstream, addresses(address)


def said(raw: Any) -> str:
    return str(raw.headers["x-mmcache"]).split(";")[0]


def test_batches_of_chunks_and_a_question(world: tuple[Upstream, dict[str, str]]) -> None:
    upstream, entered = world
    client = OpenAI(api_key=KEY, base_url=urljoin(entered["embedding"], "v1"))

    def embed(texts: list[str]) -> Any:
        return client.embeddings.with_raw_response.create(
            input=texts, model="bge-m3", encoding_format="float", extra_body={"drop_params": True}
        )

    texts = [f"chunk {number}" for number in range(16)]  # its batches
    first, second = embed(texts), embed(texts)
    assert (said(first), said(second)) == ("miss", "hit")
    assert [one.embedding for one in second.parse().data] == [one.embedding for one in first.parse().data]
    assert said(embed([*texts[:3], "new"])) == "partial"
    assert json.loads(upstream.asked[-1].body)["input"] == ["new"]
    assert json.loads(upstream.asked[-1].body)["drop_params"] is True
    assert said(embed(["chunk 1"])) == "hit"
    assert upstream.count("/v1/embeddings") == 2


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_documents_are_ranked_once(world: tuple[Upstream, dict[str, str]], path: str) -> None:
    upstream, entered = world
    address = entered["rerank"] if path == "/v1/rerank" else urljoin(entered["chat"], "/rerank")  # older versions
    assert address.endswith(path)
    texts = ["a cat", "a dog", "a cow"]
    data: Any = {"model": "bge-reranker", "query": "which animal?", "documents": texts, "top_n": len(texts)}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    first = requests.post(address, headers=headers, json=data, timeout=10)
    second = requests.post(address, headers=headers, json=data, timeout=10)
    assert (said(first), said(second)) == ("miss", "hit")
    ranks = [{one["index"]: one["relevance_score"] for one in answer.json()["results"]} for answer in (first, second)]
    assert ranks[0] == ranks[1]
    assert set(ranks[0]) == {0, 1, 2}
    assert upstream.count(path) == 1


@pytest.mark.parametrize("extra", [{}, {"enable_thinking": False}], ids=["plain", "qwen3"])
def test_a_chat_at_temperature_0_is_answered_once(
    world: tuple[Upstream, dict[str, str]], extra: dict[str, Any]
) -> None:
    upstream, entered = world
    client = OpenAI(api_key=KEY, base_url=entered["chat"])

    def ask(temperature: float = 0.0) -> Any:
        return client.chat.completions.with_raw_response.create(
            model="qwen3", messages=[{"role": "system", "content": "Answer."}, {"role": "user", "content": "What?"}],
            temperature=temperature, top_p=0.3, presence_penalty=0.4, frequency_penalty=0.7, extra_body=extra,
        )  # fmt: skip

    first, second = ask(), ask()
    assert (said(first), said(second)) == ("miss", "hit")
    assert second.parse().choices[0].message.content == "A cat."
    assert [said(ask(0.1)) for _ in range(2)] == ["bypass"] * 2  # its default: see the how-to
    assert upstream.count("/v1/chat/completions") == 3


def test_a_streamed_chat_is_replayed(world: tuple[Upstream, dict[str, str]]) -> None:
    upstream, entered = world
    client = OpenAI(api_key=KEY, base_url=entered["chat"])

    def ask() -> tuple[str, list[str]]:
        with client.chat.completions.with_streaming_response.create(
            model="m", messages=[{"role": "user", "content": "What?"}], stream=True, temperature=0
        ) as raw:
            return said(raw), [c.choices[0].delta.content or "" for c in raw.parse() if c.choices]

    (first, told), (second, again) = ask(), ask()
    assert (first, second) == ("miss", "hit")
    assert "".join(told) == "".join(again) == "A cat."
    assert upstream.count("/v1/chat/completions") == 1
