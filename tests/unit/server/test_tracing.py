"""The proxy in a trace: whose child its span is, what the upstream is told, and what no client can do by headers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install 'mmcache[otel]'")

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.server.conftest import KEY, World
from tests.unit.server.echo import ECHO, echoed
from tests.unit.server.upstream import Asked as Reached
from tests.unit.server.upstream import reply

from mmcache import attribution
from mmcache.attribution import Attribution
from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.exchange import Answered, Asked, Proxy
from mmcache.telemetry.requests import Requests

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
CHAT = "/v1/chat/completions"
PATIENCE = 60.0


class Ended(SpanProcessor):  # type: ignore[misc]  # untyped
    """Spans that have ended, in order; whoever waits for one is told."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self._more = threading.Condition()

    def on_end(self, span: ReadableSpan) -> None:
        with self._more:
            self.spans.append(span)
            self._more.notify_all()

    def of(self, kind: SpanKind, count: int = 1) -> list[ReadableSpan]:
        """The first `count` of this kind, once they have ended."""
        with self._more:
            assert self._more.wait_for(lambda: sum(span.kind is kind for span in self.spans) >= count, PATIENCE)
            return [span for span in self.spans if span.kind is kind]


@dataclass
class Traced:
    """A tracer, and what it recorded."""

    sample: float = 1.0
    asked_per_second: float = 100.0
    ended: Ended = field(default_factory=Ended)

    def __post_init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.ended)
        self.requests = Requests(provider, self.sample, asked_per_second=self.asked_per_second, clock=lambda: 0.0)

    def server(self, count: int = 1) -> list[ReadableSpan]:
        return self.ended.of(SpanKind.SERVER, count)

    def client(self, count: int = 1) -> list[ReadableSpan]:
        return self.ended.of(SpanKind.CLIENT, count)


@pytest.fixture
def traced() -> Callable[..., Traced]:
    return Traced


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def last(world: World, path: str = ECHO) -> Reached:
    return [asked for asked in world.upstream.asked if asked.path == path][-1]


def test_a_request_is_a_child_of_its_caller_and_the_upstreams_a_child_of_it(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    world.ask(traceparent=PARENT, tracestate="a=1,b=2", baggage="user=secret", user_agent="OpenAI/Python 2.8.1")
    (server,), (client,) = tracer.server(), tracer.client()
    assert ids(server)[0] == ids(client)[0] == TRACE
    assert (parent(server), parent(client)) == (SPAN, ids(server)[1])
    assert (server.name, client.name) == (f"POST {ECHO}", f"upstream POST {ECHO}")
    reached = last(world)
    assert reached.header(b"traceparent") == f"00-{TRACE}-{ids(client)[1]}-01".encode()
    assert reached.header(b"tracestate") == b"a=1,b=2"
    assert reached.header(b"baggage") == b"user=secret"
    assert sum(name == b"traceparent" for name, _ in reached.headers) == 1
    facts = told(server)
    tenant = facts.pop("cache.tenant")
    assert tenant.startswith("key:")
    assert facts == {
        "http.request.method": "POST", "http.route": ECHO, "http.response.status_code": 200, "cache.outcome": "miss",
        "cache.miss.reason": "absent", "cache.namespace": "default", "cache.route": ECHO,
        "cache.client": "openai-python/2.8", "cache.sampling.weight": 1.0,
    }  # fmt: skip
    assert told(client) == {
        "http.request.method": "POST", "http.response.status_code": 200, "server.address": "127.0.0.1",
        "server.port": int(world.behind.rpartition(":")[2]), "cache.sampling.weight": 1.0,
    }  # fmt: skip
    assert "secret" not in str([told(span) for span in tracer.ended.spans])


def test_a_hit_says_what_it_saved_and_asks_nobody(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    world.ask()
    world.ask()
    _, hit = tracer.server(2)
    assert told(hit)["cache.outcome"] == "hit"
    assert "cache.miss.reason" not in told(hit)
    assert len([span for span in tracer.client() if span.name == f"upstream POST {ECHO}"]) == 1


@pytest.mark.parametrize(
    "tracer", [None, Requests(TracerProvider(shutdown_on_exit=False), 0.0)], ids=["off", "unsampled"]
)
def test_headers_of_tracing_go_through_untouched_where_nothing_is_recorded(proxied: Any, tracer: Any) -> None:
    world = proxied(tracer=tracer)
    for number, (given, state) in enumerate([(f"00-{TRACE}-{SPAN}-00", "a=1"), ("nonsense", "="), ("", "")]):
        world.ask(f"{number}", traceparent=given, tracestate=state)
        reached = last(world)
        assert reached.header(b"traceparent") == given.encode()
        assert reached.header(b"tracestate") == state.encode()


@pytest.mark.parametrize(
    "given",
    [
        "", "nonsense", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-1", f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", PARENT + "-more",
        f"00-{TRACE[:-1]}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-", "0" * 1000, f"cc-{TRACE}-{SPAN}-01.what",
    ],
)  # fmt: skip
def test_a_malformed_parent_is_nobodys_child(proxied: Any, traced: Any, given: str) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    assert world.ask(traceparent=given, tracestate="a=1").status_code == 200
    (server,), (client,) = tracer.server(), tracer.client()
    assert server.parent is None
    assert ids(server)[0] != TRACE
    assert last(world).header(b"traceparent") == f"00-{ids(client)[0]}-{ids(client)[1]}-01".encode()
    assert last(world).header(b"tracestate") is None


def test_two_parents_are_none_and_a_later_version_is_one(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    body = {"model": "small", "text": "a"}
    twice = [*KEY.items(), ("traceparent", PARENT), ("traceparent", PARENT)]
    assert world.client.post(ECHO, json=body, headers=twice).status_code == 200
    world.ask("b", traceparent=f"cc-{TRACE}-{SPAN}-01-what-will-be")
    one, two = tracer.server(2)
    assert one.parent is None
    assert parent(two) == SPAN


@pytest.mark.parametrize(("state", "sent"), [("a=1", b"a=1"), ("a=" + "x" * 600, None), ("a==,;", None), ("é=1", None)])
def test_a_tracestate_that_cannot_be_read_is_dropped(proxied: Any, traced: Any, state: str, sent: bytes | None) -> None:
    world = proxied(tracer=traced().requests)
    headers = [*KEY.items(), ("traceparent", PARENT), ("tracestate", state.encode())]
    assert world.client.post(ECHO, json={"model": "small"}, headers=headers).status_code == 200
    assert last(world).header(b"tracestate") == sent


def test_whoever_asks_for_it_is_recorded_within_a_limit_and_shifts_no_count(proxied: Any, traced: Any) -> None:
    tracer = traced(sample=0.0, asked_per_second=2.0)
    world = proxied(tracer=tracer.requests)
    for number in range(4):
        world.ask(f"{number}", traceparent=PARENT)
        asked = last(world).header(b"traceparent")
        assert (asked == PARENT.encode()) == (number >= 2)
    world.ask("5", traceparent=f"00-{TRACE}-{SPAN}-00")
    assert [told(span)["cache.sampling.weight"] for span in tracer.server(2)] == [0.0, 0.0]
    assert len(tracer.server(2)) == 2


def test_whoever_asks_not_to_be_recorded_is_drawn_all_the_same(proxied: Any, traced: Any) -> None:
    tracer = traced()
    proxied(tracer=tracer.requests).ask(traceparent=f"00-{TRACE}-{SPAN}-00")
    (server,) = tracer.server()
    assert ids(server)[0] == TRACE
    assert told(server)["cache.sampling.weight"] == 1.0


def test_what_only_passes_is_told_without_what_a_client_wrote(proxied: Any, traced: Any) -> None:
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    world.client.get("/v1/files/private?key=private", headers=KEY | {"traceparent": PARENT})
    world.client.request("REPORT", "/v1/private", headers=KEY)
    world.client.get("/healthz")
    first, second = tracer.server(2)
    assert (first.name, second.name) == ("GET", "HTTP")
    assert [span.name for span in tracer.client(2)] == ["upstream GET", "upstream _OTHER"]
    assert told(first)["cache.route"] == "other"
    assert told(first)["cache.outcome"] == "pass"
    assert told(second)["http.request.method"] == "_OTHER"
    assert "private" not in str([(span.name, told(span)) for span in tracer.ended.spans]).lower()
    assert last(world, "/v1/files/private").header(b"traceparent") != PARENT.encode()
    assert len(tracer.ended.spans) == 4


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
