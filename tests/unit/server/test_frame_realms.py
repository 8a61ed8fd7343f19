"""Every route, through the whole proxy: nothing is shared by two callers, or by two requests that differ in anything
that might change the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.conftest import World
from tests.unit.server.upstream import Asked, Upstream, reply, served

from mmcache import Cache
from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.config import TrustRules

KEY = {"authorization": "Bearer sk-one"}
CHAT: dict[str, Any] = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "small",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "small", "error": None,
    "incomplete_details": None, "store": False,
    "output": [{"type": "message", "id": "m", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "yes", "annotations": []}]}],
    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
}  # fmt: skip
USAGE = {"prompt_tokens": 3, "total_tokens": 3}
RERANKED = {
    "id": "k", "model": "small", "usage": {"total_tokens": 3},
    "results": [{"index": 0, "document": {"text": "b"}, "relevance_score": 0.5}],
}  # fmt: skip
SCORED = {
    "id": "s", "object": "list", "created": 1, "model": "small", "usage": USAGE,
    "data": [{"index": 0, "object": "score", "score": 0.5}],
}  # fmt: skip
EMBEDDED = {
    "object": "list", "model": "small", "usage": USAGE,
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
}  # fmt: skip

RERANK = {"model": "small", "query": "a", "documents": ["b"]}
SCORE = {"model": "small", "text_1": "a", "text_2": "b"}
KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/embeddings": ({"model": "small", "input": "a"}, EMBEDDED),
    "/v1/chat/completions": (
        {"model": "small", "messages": [{"role": "user", "content": "a"}], "temperature": 0}, CHAT,
    ),
    "/v1/responses": ({"model": "small", "input": "a", "temperature": 0, "store": False}, RESPONSE),
    "/v1/audio/transcriptions": ({"model": "small", "temperature": "0"}, {"text": "yes"}),
    "/v1/audio/translations": ({"model": "small", "temperature": "0"}, {"text": "yes"}),
    "/rerank": (RERANK, RERANKED), "/v1/rerank": (RERANK, RERANKED), "/v2/rerank": (RERANK, RERANKED),
    "/score": (SCORE, SCORED), "/v1/score": (SCORE, SCORED),
}  # fmt: skip
"""By path: a request that may be cached, and its answer."""

ROUTES = sorted(path for _, path in all_routes())


def asks(world: World, path: str, query: str = "", **headers: str) -> str:
    """What the cache did for the route's known request."""
    body, _ = KNOWN[path]
    given = KEY | {name.replace("_", "-"): value for name, value in headers.items()}
    if path.startswith("/v1/audio/"):
        form = {"files": {"file": ("a.wav", b"RIFF0000WAVE", "audio/wav")}, "data": body}
        answer = world.client.post(path + query, headers=given, **form)
    else:
        answer = world.client.post(path + query, headers=given, json=body)
    assert answer.status_code == 200, answer.text
    outcome: str = answer.headers["x-mmcache"]
    return outcome


def answering(world: World, path: str) -> None:
    """The upstream gives the route's known answer."""

    async def answer(asked: Asked, send: Send) -> None:
        await reply(send, 200, json.dumps(KNOWN[path][1]).encode())

    world.upstream.on(path, answer)


def test_every_route_is_known_here() -> None:
    assert set(ROUTES) == set(KNOWN)


@pytest.mark.parametrize("path", ROUTES)
def test_a_route_hits_only_what_is_the_same_in_all(proxied: Callable[..., World], path: str) -> None:
    world = proxied(all_routes())
    answering(world, path)
    assert asks(world, path).startswith("miss")
    assert asks(world, path).startswith("hit")
    assert asks(world, path, user_agent="another", x_request_id="1", accept="*/*").startswith("hit")
    assert asks(world, path, "?").startswith("hit")
    others: list[tuple[str, dict[str, str]]] = [
        *(("", header) for header in (
            {"authorization": "Bearer sk-two"}, {"authorization": "sk-one"}, {"openai_organization": "o"},
            {"openai_organization": "p"}, {"openai_project": "o"}, {"openai_beta": "b"}, {"accept_language": "de"},
            {"cookie": "a=b"}, {"x_anything": "1"}, {"accept": "text/csv"},
        )),
        ("?api-version=1", {}), ("?api-version=2", {}),
    ]  # fmt: skip
    for count, (query, headers) in enumerate(others, 2):
        assert asks(world, path, query, **headers).startswith(("miss", "bypass")), (query, headers)
        assert world.upstream.count(path) == count, (query, headers)
    assert asks(world, path).startswith("hit")


@pytest.mark.parametrize("path", ROUTES)
def test_a_route_never_serves_who_was_refused(proxied: Callable[..., World], path: str) -> None:
    world = proxied(all_routes(), trust=TrustRules(authority_seconds=1e-9))
    answering(world, path)
    asks(world, path)
    assert asks(world, path).startswith("hit")
    world.upstream.refused.add(b"Bearer sk-one")
    with pytest.raises(AssertionError, match="revoked"):
        asks(world, path)
    world.upstream.refused.clear()
    world.upstream.down = True
    with pytest.raises(AssertionError, match="denied"):
        asks(world, path)


@pytest.mark.parametrize("path", ROUTES)
def test_a_route_obeys_directives_and_versions(proxied: Callable[..., World], path: str) -> None:
    with Cache(memory="16MiB") as cache:
        world = proxied(all_routes(), cache=cache)
        answering(world, path)
        assert asks(world, path, cache_control="no-store") == "bypass; reason=no-store"
        assert asks(world, path).startswith("miss")
        assert not asks(world, path, cache_control="no-cache").startswith("hit")
        assert asks(world, path, cache_control="max-age=3600").startswith("hit")
        assert not asks(world, path, cache_control="max-age=0").startswith("hit")
        assert asks(world, path, cache_control="only-if-cached").startswith("hit")
        with pytest.raises(AssertionError):
            asks(world, path, cache_control="only-if-cached", openai_beta="1")
        later = proxied(all_routes(), cache=cache, version="2")
        assert asks(later, path).startswith("miss")


@pytest.mark.parametrize("path", ROUTES)
def test_another_upstream_shares_nothing(proxied: Callable[..., World], path: str) -> None:
    """Its models may have the same names."""
    with Cache(memory="16MiB") as cache, served(Upstream()) as elsewhere:
        world = proxied(all_routes(), cache=cache)
        answering(world, path)
        asks(world, path)
        assert asks(world, path).startswith("hit")
        for other in (
            proxied(all_routes(), cache=cache, upstream=elsewhere),
            proxied(all_routes(), cache=cache, kind="vllm"),
        ):
            with pytest.raises(AssertionError):
                asks(other, path, cache_control="only-if-cached")
