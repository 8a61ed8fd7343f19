"""Pictures to embed and to rank: by what they show, each once, and only those that are missing are sent."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import pytest
from tests.unit.server.batch_world import ModelUpstream, asks, outcome, proxied, settled, told

from mmcache import Cache
from mmcache.server.batches import State
from mmcache.server.config import RouteRules
from mmcache.server.embeddings import ROUTE
from mmcache.server.exchange import Answered, BypassedError, Proxy
from mmcache.server.rerank import RERANK

Image = pytest.importorskip("PIL.Image")


def picture(shade: int, compression: int = 6) -> dict[str, Any]:
    raw = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, 0, 0)).save(raw, "PNG", compress_level=compression)
    url = "data:image/png;base64," + base64.b64encode(raw.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def talk(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "Represent this."}]}]


def world(cache: Cache) -> tuple[Proxy, ModelUpstream]:
    """An upstream that takes conversations, one or many, and documents with pictures."""
    proxy, upstream = proxied(cache)
    plain = upstream.answered

    def answered(path: str, request: dict[str, Any]) -> dict[str, Any]:
        if "messages" not in request:
            return plain(path, request)
        found = request["messages"]
        items = found if isinstance(found[0], list) else [found]
        return plain(path, {"model": request["model"], "input": [json.dumps(item) for item in items]})

    upstream.answered = answered  # type: ignore[method-assign]
    return proxy, upstream


def ask(proxy: Proxy, body: Any, path: str = "/v1/embeddings", **options: Any) -> Answered:
    route = ROUTE if path.endswith("embeddings") else RERANK
    return asyncio.run(settled(proxy, route(asks(body, path, **options), proxy)))


def test_conversations_with_pictures() -> None:
    with Cache() as cache:
        proxy, upstream = world(cache)
        first = ask(proxy, {"model": "m", "messages": talk(picture(1))})
        assert first.verdict.outcome == "miss"
        assert upstream.seen[0]["messages"] == talk(picture(1))
        again = ask(proxy, {"model": "m", "messages": talk(picture(1, compression=0))})
        assert again.verdict.outcome == "hit"  # another file of the same pixels
        assert told(again)["data"] == told(first)["data"]
        assert ask(proxy, {"model": "m", "messages": talk(picture(2))}).verdict.outcome == "miss"
        assert ask(proxy, {"model": "m", "messages": talk(picture(1), picture(1))}).verdict.outcome == "miss"
        many = [talk(picture(3)), talk(picture(1)), talk(picture(4)), talk(picture(3))]
        answered = ask(proxy, {"model": "m", "messages": many})
        assert outcome(answered) == ("partial", "1", "2")
        assert upstream.seen[-1]["messages"] == [talk(picture(3)), talk(picture(4))]
        data = told(answered)["data"]
        assert data[1]["embedding"] == told(first)["data"][0]["embedding"]
        assert data[0]["embedding"] == data[3]["embedding"] != data[2]["embedding"]


def test_pairs_with_pictures() -> None:
    def document(*shades: int) -> dict[str, Any]:
        return {"content": [picture(shade) for shade in shades]}

    rules = RouteRules(pairs=True)
    with Cache() as cache:
        proxy, upstream = world(cache)
        upstream.spoil = lambda r: {**r, "results": [
            {name: value for name, value in one.items() if name != "document"} for one in r["results"]
        ]}  # fmt: skip
        body = {"model": "m", "query": document(9), "documents": [document(1), document(2, 3)]}
        ask(proxy, body, "/v1/rerank", rules=rules)
        body["documents"] = [document(4), document(2, 3), "words", document(1)]
        answered = ask(proxy, body | {"top_n": 3}, "/v1/rerank", rules=rules)
        assert outcome(answered) == ("partial", "2", "2")
        assert upstream.seen[-1] == {"model": "m", "query": document(9), "documents": [document(4), "words"]}
        whole = upstream.spoil(ModelUpstream().answered("/v1/rerank", body | {"top_n": 3}))
        assert told(answered)["results"] == whole["results"]
        body["query"] = document(8)
        assert outcome(ask(proxy, body, "/v1/rerank", rules=rules)) == ("miss", "0", "4")


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "remote-media"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}, None),
        ({"type": "surprise"}, None),
        ({"text": "no type"}, "unknown-part"),
    ],
)
def test_what_cannot_be_seen_is_not_cached(part: Any, reason: str | None) -> None:
    with Cache() as cache:
        proxy, upstream = world(cache)
        with pytest.raises(BypassedError) as caught:
            ask(proxy, {"model": "m", "messages": talk(part)})
        assert reason in (None, caught.value.reason)
        with pytest.raises(BypassedError):
            ask(proxy, {"model": "m", "query": "q", "documents": [{"content": [part]}]}, "/v1/rerank")
        assert upstream.seen == []


def test_more_pictures_than_the_rules_allow() -> None:
    with Cache() as cache:
        proxy, _ = world(cache)
        with pytest.raises(BypassedError, match="too-many-parts"):
            ask(proxy, {"model": "m", "messages": talk(picture(1), picture(2))}, rules=RouteRules(most_parts=1))


def test_what_is_not_all_in_the_body_is_looked_at_again_each_time() -> None:
    with Cache() as cache:
        proxy, _ = world(cache)
        for part, known in ((picture(1), 1), ({**picture(1), "uuid": "mine"}, 1), (picture(2), 2)):
            for _ in range(3):
                last = ask(proxy, {"model": "m", "messages": talk(part)})
            assert last.verdict.outcome == "hit"
            assert len(State.of(proxy).memo) == known
