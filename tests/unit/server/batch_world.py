"""An upstream that embeds and scores by a hash of what it is given, in process, and remembers what it was asked."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
from blake3 import blake3

from mmcache import Cache
from mmcache.server.batches import State
from mmcache.server.config import RouteRules, ServerSettings
from mmcache.server.exchange import Answered, Asked, Directives, Headers, Proxy

LENGTH = 8
Spoil = Callable[[dict[str, Any]], Any]


class Reply:
    def __init__(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        self.status, self.body = status, body
        self.headers: Headers = headers or [(b"content-type", b"application/json"), (b"x-upstream", b"yes")]

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    async def read(self) -> bytes:
        return self.body

    async def close(self) -> None: ...


def vector(model: str, item: Any, dimensions: int = LENGTH) -> list[float]:
    """Float32, as exact doubles."""
    raw = blake3(json.dumps([model, item]).encode()).digest(length=4 * dimensions)
    return (np.frombuffer(raw, "<u4").astype(np.float32) / np.float32(2**32)).astype(np.float64).tolist()  # type: ignore[no-any-return]


def relevance(model: str, query: Any, document: Any) -> float:
    return blake3(json.dumps([model, query, document]).encode()).digest()[0] / 64  # few values: many ties


def tokens(item: Any) -> int:
    return len(json.dumps(item))


class ModelUpstream:
    """`seen`: parsed bodies; `bodies`: as they came; `billed`: tokens told in all."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.billed = 0
        self.model = ""
        """What it says its model is, where that is not what was asked for."""
        self.write: Callable[[list[float]], list[float]] = lambda numbers: numbers
        self.spoil: Spoil = lambda reply: reply
        self.status = 200
        self.headers: Headers | None = None
        self.before: Callable[[], Any] | None = None

    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Reply:
        request = json.loads(body)
        self.seen.append(request)
        self.bodies.append(body)
        if self.before is not None:
            await self.before()
        if self.status != 200:
            return Reply(self.status, b'{"error":{"message":"no"}}', self.headers)
        reply = self.spoil(self.answered(path, request))
        text = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        return Reply(200, text, self.headers)

    def answered(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        model = self.model or request["model"]
        if path.endswith("/embeddings"):
            given = request["messages"] if "messages" in request else request["input"]
            if isinstance(given, str) or all(isinstance(each, int) for each in given) or "messages" in request:
                given = [given]
            numbers = [vector(model, each, request.get("dimensions", LENGTH)) for each in given]
            packed = request.get("encoding_format") == "base64"
            data: list[Any] = [
                {"object": "embedding", "index": i, "embedding": pack(each) if packed else self.write(each)}
                for i, each in enumerate(numbers)
            ]
            count = sum(map(tokens, given))
            reply = {"id": f"embd-{len(self.seen)}", "object": "list", "created": 1, "model": model, "data": data}
        else:
            left, right = sides(request)
            pairs = [(left[0] if len(left) == 1 else left[i], each) for i, each in enumerate(right)]
            scores = [relevance(model, *pair) for pair in pairs]
            count = sum(tokens(pair) for pair in pairs)
            if path.endswith("/score"):
                data = [{"index": i, "object": "score", "score": each} for i, each in enumerate(scores)]
                reply = {"id": "s", "object": "list", "created": 1, "model": model, "data": data}
            else:
                results: list[Any] = [
                    {"index": i, "document": {"text": right[i], "multi_modal": None}, "relevance_score": each}
                    for i, each in enumerate(scores)
                ]
                results.sort(key=lambda one: one["relevance_score"], reverse=True)
                reply = {"id": "r", "model": model, "results": results[: request.get("top_n") or len(results)]}
        self.billed += count
        return reply | {"usage": {"prompt_tokens": count, "total_tokens": count}}

    async def close(self) -> None: ...


def sides(request: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    found = [request[name] for name in ("query", "text_1", "documents", "text_2") if name in request]
    return tuple(each if isinstance(each, list) else [each] for each in found)  # type: ignore[return-value]


def pack(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def proxied(cache: Cache, kind: Any = "openai", version: str = "1") -> tuple[Proxy, ModelUpstream]:
    upstream = ModelUpstream()
    compared: list[bool] = []
    proxy = Proxy(
        cache, upstream, ServerSettings("http://upstream", kind=kind, version=version),
        compared=lambda path, same: compared.append(same),
    )  # fmt: skip
    proxy.kept["compared"] = compared
    return proxy, upstream


def asks(
    body: Any,
    path: str = "/v1/embeddings",
    *,
    tenant: str = "t",
    rules: RouteRules = RouteRules(),  # noqa: B008 - frozen
    directives: Directives = Directives(),  # noqa: B008 - frozen
) -> Asked:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Asked("POST", path, b"", [(b"content-type", b"application/json")], raw, tenant, directives, rules)


def told(answered: Answered) -> Any:
    assert isinstance(answered.body, bytes)
    return json.loads(answered.body)


async def settled(proxy: Proxy, answering: Awaitable[Answered]) -> Answered:
    """What it answers; and what it stores is stored."""
    try:
        return await answering
    finally:
        await State.of(proxy).end()


def outcome(answered: Answered) -> tuple[str, str, str]:
    verdict = answered.verdict
    return verdict.outcome, verdict.details.get("hits", ""), verdict.details.get("misses", "")
