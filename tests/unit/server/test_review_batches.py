"""What a hostile reader of batches tried: what the upstream says that is not a batch's values, and who reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.batch_world import ModelUpstream, Reply, asks, proxied, settled, told

from mmcache import Cache
from mmcache.server.batch_sending import LARGE, apart
from mmcache.server.batches import State
from mmcache.server.embeddings import ROUTE, Embeddings
from mmcache.server.exchange import Answered, BypassedError, Headers, Proxy
from mmcache.server.rerank import RERANK


@pytest.fixture
def world() -> Iterator[tuple[Proxy, ModelUpstream]]:
    with Cache() as cache:
        yield proxied(cache)


def ask(proxy: Proxy, body: dict[str, Any], **options: Any) -> Answered:
    return asyncio.run(settled(proxy, ROUTE(asks(body, **options), proxy)))


def body(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(texts)} | more


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_fault_of_a_part_is_not_told_as_one_of_the_whole(world: tuple[Proxy, ModelUpstream], status: int) -> None:
    """`input[0] is too long` would be about another text than the caller's first."""
    proxy, upstream = world
    ask(proxy, body("a"))
    upstream.status = status
    with pytest.raises(BypassedError, match="refused"):  # so the frame sends all of it
        ask(proxy, body("a", "b"))
    assert ask(proxy, body("b", "c")).status == status


@pytest.mark.parametrize("usage", [None, "missing", [], 3, {"total": 1}])
def test_no_usage_is_made_up(world: tuple[Proxy, ModelUpstream], usage: Any) -> None:
    proxy, upstream = world

    def spoil(reply: dict[str, Any]) -> dict[str, Any]:
        del reply["usage"]
        return reply if usage == "missing" else reply | {"usage": usage}

    upstream.spoil = spoil
    ask(proxy, body("a"))
    partial = told(ask(proxy, body("a", "b")))
    assert partial.get("usage", "missing") == usage
    assert ask(proxy, body("a")).verdict.saved_tokens == 0


class Streamed(Reply):
    """A reply in pieces; `ended`: how its connection was given back."""

    ended = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self.body), 100):
            yield self.body[at : at + 100]

    async def read(self) -> bytes:
        raise AssertionError("read whole, whatever its size")

    async def close(self) -> None:
        self.ended += 1


class StreamedUpstream(ModelUpstream):
    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Streamed] = []

    async def send(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Streamed:
        reply = await super().send(method, path, query, headers, body)
        self.replies.append(Streamed(reply.status, reply.body, reply.headers))
        return self.replies[-1]


def test_an_answer_too_large_to_be_kept_is_passed_on_whole() -> None:
    with Cache() as cache:
        proxy, _ = proxied(cache)
        upstream = StreamedUpstream()
        proxy = replace(proxy, upstream=upstream, settings=replace(proxy.settings, largest_answer_bytes=500))

        async def main() -> bytes:
            answered = await ROUTE(asks(body("a", "b", "c", "d")), proxy)
            assert (answered.verdict.outcome, answered.verdict.reason) == ("bypass", "too-large")
            assert not isinstance(answered.body, bytes)
            pieces = [piece async for piece in answered.body]
            await answered.body.aclose()  # type: ignore[attr-defined]
            return b"".join(pieces)

        found = asyncio.run(main())
        assert found == upstream.replies[0].body
        assert (len(upstream.replies), upstream.replies[0].ended) == (1, 1)

        async def part() -> None:
            await settled(proxy, ROUTE(asks(body("a")), proxy))
            with pytest.raises(BypassedError, match="too-large"):
                await settled(proxy, ROUTE(asks(body("a", "b", "c", "d", "e")), proxy))
            gone = asyncio.create_task(ROUTE(asks(body("w", "x", "y", "z")), proxy))
            upstream.before = lambda: asyncio.sleep(0)
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.wait([gone])
            await State.of(proxy).end()

        asyncio.run(part())
        assert [reply.ended for reply in upstream.replies] == [1] * len(upstream.replies)


def test_old_memos_are_let_go_when_other_settings_hold(world: tuple[Proxy, ModelUpstream]) -> None:
    """A reload makes another `kept`; what the end calls must not hold 64 MiB for each."""
    proxy, _ = world
    state = State.of(proxy)
    proxy.kept.clear()
    assert State.of(proxy) is not state
    assert not any(state is getattr(closer, "__self__", None) for closer in proxy.closers)
    assert len(proxy.closers) == 2


def test_an_odd_usage_of_a_list_is_not_our_fault(world: tuple[Proxy, ModelUpstream]) -> None:
    proxy, upstream = world
    upstream.spoil = lambda reply: json.dumps(reply | {"usage": {"x": "X"}}).encode().replace(b"X", b"\xff")
    asked = asks({"model": "r", "query": "q", "documents": ["a"]}, "/v1/rerank")
    answered = asyncio.run(settled(proxy, RERANK(asked, proxy)))
    assert (answered.status, answered.verdict.reason) == (200, "odd-reply")
    assert len(upstream.seen) == 1


def test_what_is_large_is_read_beside_the_loop(world: tuple[Proxy, ModelUpstream]) -> None:
    import threading

    proxy, _ = world
    assert asyncio.run(apart(True, threading.get_ident)) != asyncio.run(apart(False, threading.get_ident))
    tokens = [list(range(40_000)), [1]]
    asked = asks({"model": "m", "input": tokens})
    assert len(asked.body) > LARGE
    for outcome in ("miss", "hit"):
        assert asyncio.run(settled(proxy, ROUTE(asked, proxy))).verdict.outcome == outcome


def test_what_looks_alike_is_never_the_same_item(world: tuple[Proxy, ModelUpstream]) -> None:
    proxy, upstream = world
    items = [
        "1",
        [1],
        [1, 2],
        "1,2",
        "[1]",
        "",
        " ",
        "\0",
        "a",
        "a\0",
        "é",
        "e\u0301",
        [0],
        [-0, 1],
        [10**18],
        "[1, 2]",
    ]
    for count, given in enumerate(items, 1):
        ask(proxy, {"model": "m", "input": given})
        assert len(upstream.seen) == count
    odd: list[Any] = [[True], [1.0], [None], [[]], [["1"]], [1, "1"], [[1], [True]], 1, True, None, {}, []]
    for given in odd:
        with pytest.raises(BypassedError):
            ask(proxy, {"model": "m", "input": given})
    fields: list[dict[str, Any]] = [{"dimensions": 8}, {"dimensions": 8.0}, {"dimensions": "8"}, {"dimensions": True}]
    for count, more in enumerate(fields, len(items) + 1):
        upstream.answered = lambda path, request: ModelUpstream().answered(path, request | {"dimensions": 8})  # type: ignore[method-assign]
        ask(proxy, body("a", **more))
        assert len(upstream.seen) == count


def test_an_answer_is_put_together_once(world: tuple[Proxy, ModelUpstream], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, _ = world
    ask(proxy, body("a"))
    assembled: list[int] = []
    assemble = Embeddings.assemble

    def counted(self: Embeddings, values: Any, envelope: Any, usage: Any) -> bytes:
        assembled.append(len(values))
        return assemble(self, values, envelope, usage)

    monkeypatch.setattr(Embeddings, "assemble", counted)
    assert ask(proxy, body("a", "b", "c")).verdict.outcome == "partial"
    assert assembled == [3]
