"""A request's span: when it ends, what it says, what is in it, and that it is nobody else's."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install 'mmcache[otel]'")

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.server.conftest import KEY
from tests.unit.server.echo import ECHO, echoed
from tests.unit.server.traced import PARENT, PATIENCE, SPAN, TRACE, Traced, ids, parent, told
from tests.unit.server.upstream import Asked as Reached
from tests.unit.server.upstream import reply

from mmcache import Cache, attribution
from mmcache.attribution import Attribution
from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.exchange import Answered, Asked, Proxy
from mmcache.telemetry import instrument
from mmcache.telemetry.requests import Requests

CHAT = "/v1/chat/completions"


@pytest.fixture
def traced() -> Callable[..., Traced]:
    return Traced


def test_faults_are_told_by_a_word(proxied: Any, traced: Any) -> None:
    async def broken(asked: Asked, proxy: Proxy) -> Answered:
        raise ValueError("a private prompt")

    tracer = traced()
    world = proxied({("POST", ECHO): echoed, ("POST", "/v1/broken"): broken}, tracer=tracer.requests)
    world.upstream.down = True
    assert world.ask("secret").status_code == 503
    assert world.ask("secret", authorization="").status_code == 401
    down, refused = tracer.server(2)
    assert told(down)["error.type"] == "503"
    assert down.status.status_code is StatusCode.ERROR
    assert refused.status.status_code is StatusCode.UNSET
    assert (told(refused)["cache.outcome"], told(refused)["cache.miss.reason"]) == ("bypass", "missing-api-key")
    (client,) = tracer.client()
    assert told(client)["error.type"] == "503"
    assert "secret" not in str([(span.name, told(span), span.events) for span in tracer.ended.spans])


def test_a_request_that_waits_for_another_is_linked_to_it(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(all_routes(), tracer=tracer.requests)
    come, go = threading.Event(), threading.Event()

    async def slow(asked: Reached, send: Send) -> None:
        come.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice]}
        await reply(send, 200, answer | {"usage": usage})

    world.upstream.on(CHAT, slow)
    body = {"model": "small", "temperature": 0, "messages": [{"role": "user", "content": "well?"}]}

    def ask() -> None:
        world.client.post(CHAT, json=body, headers=KEY, timeout=PATIENCE).raise_for_status()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    try:
        threads[0].start()
        assert come.wait(PATIENCE)
        threads[1].start()
        calls = world.frame.live.proxy.kept["mmcache.server.calls"]
        for _ in range(int(PATIENCE * 100)):
            if any(call.waiting == 2 for call in calls._all.values()):
                break
            threading.Event().wait(0.01)
    finally:
        go.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(PATIENCE)
    spans = tracer.server(2)
    linked = [span for span in spans if span.links]
    assert len(linked) == 1
    (leader,) = [span for span in spans if not span.links]
    assert linked[0].links[0].context == leader.get_span_context()
    assert told(linked[0])["cache.outcome"] == "hit"
    assert parent(tracer.client()[0]) == ids(leader)[1]


def test_the_span_of_a_stream_ends_with_it(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    go = threading.Event()

    async def stream(asked: Reached, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await asyncio.to_thread(go.wait, PATIENCE)
        await send({"type": "http.response.body", "body": b"two"})

    world.upstream.on("/stream", stream)
    try:
        with world.client.stream("GET", "/stream", headers=KEY, timeout=PATIENCE) as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b"one"
            assert tracer.ended.spans == []
            go.set()
            assert b"".join(pieces) == b"two"
    finally:
        go.set()
    assert (len(tracer.server()), len(tracer.client())) == (1, 1)


def test_requests_of_one_connection_do_not_mix(proxied: Any, traced: Any) -> None:
    """Sent at once, so that each but the first is begun where the one before it ends."""
    seen: dict[str, tuple[Attribution, str]] = {}

    async def look(asked: Asked, proxy: Proxy) -> Answered:
        seen[asked.body.decode()] = attribution.current(), asked.path
        return await echoed(asked, proxy)

    tracer = traced()
    world = proxied({("POST", ECHO): look, ("POST", "/v1/b"): look}, tracer=tracer.requests)
    agents = ["curl/8.5.0", "OpenAI/Python 2.8.0", None, "curl/8.6.0", "what is <this>"]
    requests = b""
    for number, agent in enumerate(agents):
        body = b'{"model":"small","n":%d}' % number
        lines = [f"POST {ECHO if number % 2 else '/v1/b'} HTTP/1.1", "host: a", "authorization: Bearer sk-one"]
        lines += [f"user-agent: {agent}"] if agent is not None else []
        lines += [f"traceparent: 00-{number + 1:032x}-{number + 1:016x}-01"] if number != 3 else []
        lines += [f"content-length: {len(body)}", "connection: " + ("close" if number == 4 else "keep-alive"), "", ""]
        requests += "\r\n".join(lines).encode() + body
    with socket.create_connection(("127.0.0.1", world.port), timeout=PATIENCE) as connection:
        connection.sendall(requests)
        answers = b""
        while piece := connection.recv(65536):
            answers += piece
    assert answers.count(b"HTTP/1.1 200") == 5
    words = ["curl/8.5", "openai-python/2.8", "", "curl/8.6", "other"]
    for number, word in enumerate(words):
        asked = seen[f'{{"model":"small","n":{number}}}']
        assert asked == (Attribution(asked[1], word, ""), ECHO if number % 2 else "/v1/b")
    by_trace = {ids(span)[0]: span for span in tracer.server(5)}
    for number, word in enumerate(words):
        if number != 3:
            span = by_trace[f"{number + 1:032x}"]
            assert parent(span) == f"{number + 1:016x}"
            assert told(span).get("cache.client", "") == word
            assert told(span)["cache.route"] == (ECHO if number % 2 else "/v1/b")
    assert len(by_trace) == 5
    assert attribution.current() == Attribution()


def test_a_client_that_goes_ends_its_span(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    come, go = threading.Event(), threading.Event()

    async def never(asked: Reached, send: Send) -> None:
        come.set()
        await asyncio.to_thread(go.wait, PATIENCE)

    world.upstream.on("/never", never)
    try:
        with socket.create_connection(("127.0.0.1", world.port)) as connection:
            connection.sendall(b"GET /never HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-one\r\n\r\n")
            assert come.wait(PATIENCE)
        (server,) = tracer.server()
    finally:
        go.set()
    assert told(server)["error.type"] == "client-gone"
    assert "http.response.status_code" not in told(server)
    assert told(tracer.client()[0])["error.type"] == "given-up"


def test_a_tracer_whose_parts_fail_fails_no_request(proxied: Any) -> None:
    class Broken(SpanProcessor):  # type: ignore[misc]  # untyped
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("broken")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("broken")

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    world = proxied(tracer=Requests(provider, 1.0))
    assert world.ask(traceparent=PARENT).headers["x-mmcache"].startswith("miss")
    assert world.ask(traceparent=PARENT).headers["x-mmcache"].startswith("hit")


async def embed(asked: Reached, send: Send) -> None:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
    await reply(send, 200, {"object": "list", "model": "small", "data": data, "usage": {"total_tokens": 1}})


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_every_hit_of_a_request_that_is_recorded_is_in_its_trace_once(proxied: Any, traced: Any, share: float) -> None:
    """Whether the cache's own draw of hits in memory chose it or not."""
    asked, draws = 24, itertools.cycle([0.0, 0.9, 0.9, 0.9])
    with Cache(memory="16MiB") as cache:
        tracer = traced(share)
        tracer.requests._draw = lambda: 1.0
        world = proxied(all_routes(), cache=cache, tracer=tracer.requests)
        world.upstream.on("/v1/embeddings", embed)

        def outcome() -> str:
            body = {"model": "small", "input": "a"}
            headers = KEY | {"traceparent": f"00-{TRACE}-{SPAN}-00"}
            answer = world.client.post("/v1/embeddings", json=body, headers=headers)
            found: str = answer.headers["x-mmcache"].partition(";")[0]
            return found

        while outcome() != "hit":
            pass
        assert outcome() == "hit"  # the answer is remembered whole
        hits = cache.stats().hits
        with instrument(cache, tracer_provider=tracer.provider, sample=share):
            tracer.requests._draw = lambda: next(draws)
            assert {outcome() for _ in range(asked)} == {"hit"}
        assert cache.stats().hits - hits == asked
    servers = tracer.server(int(asked * share))
    lookups = [span for span in tracer.ended.spans if span.kind is not SpanKind.SERVER]
    assert {(span.name, ids(span)[0]) for span in lookups} == {("cache.lookup", TRACE)}
    assert len(servers) == len(lookups) == asked * share
    assert {parent(span) for span in lookups} == {ids(span)[1] for span in servers}
    assert sum(told(span)["cache.sampling.weight"] for span in lookups) == asked
    assert {told(span)["cache.outcome"] for span in lookups} == {"hit"}
