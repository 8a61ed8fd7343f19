"""The proxy in a trace: whose child its span is, what the upstream is told, and what no client can do by headers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install 'mmcache[otel]'")

from opentelemetry.sdk.trace import TracerProvider
from tests.unit.server.conftest import KEY
from tests.unit.server.echo import ECHO
from tests.unit.server.traced import PARENT, SPAN, TRACE, Ended, Traced, ids, last, parent, told

from mmcache.telemetry.requests import Requests, drawn
from mmcache.telemetry.sampling import weight_of


@pytest.fixture
def traced() -> Callable[..., Traced]:
    return Traced


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


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        ("a=1", b"a=1"), ("a=" + "x" * 600, None), ("a==,;", None), ("é=1", None), ("a=1,a=2", None), ("A=1", None),
        (",".join(f"k{n}=1" for n in range(33)), None), ("a@b=1, ,c= d ,", b"a@b=1,c= d"), ("a=1,no secret", None),
        ("ot=th:ffffffffffffff,a=1", b"a=1"), ("ot=th:8", None),
    ],
)  # fmt: skip
def test_a_tracestate_that_cannot_be_read_is_dropped(
    proxied: Any, traced: Any, caplog: pytest.LogCaptureFixture, state: str, sent: bytes | None
) -> None:
    """Nor is it logged; and nobody says to the upstream how many he stands for."""
    world = proxied(tracer=traced().requests)
    headers = [*KEY.items(), ("traceparent", PARENT), ("tracestate", state.encode())]
    assert world.client.post(ECHO, json={"model": "small"}, headers=headers).status_code == 200
    assert last(world).header(b"tracestate") == sent
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_full_tracestate_has_room_for_ours(proxied: Any, traced: Any) -> None:
    tracer = traced(0.25)
    tracer.requests._draw = lambda: 0.0
    world = proxied(tracer=tracer.requests)
    world.ask(traceparent=PARENT, tracestate=",".join(f"k{n}=1" for n in range(32)))
    members = (last(world).header(b"tracestate") or b"").decode().split(",")
    assert members[1:] == [f"k{n}=1" for n in range(31)]
    assert weight_of(members[0].removeprefix("ot=")) == 4.0


def test_the_next_request_of_a_connection_is_in_nobodys_trace(proxied: Any, traced: Any) -> None:
    """It begins while the first one's answer is being written; the proxy's own questions are recorded for nobody."""
    tracer = traced()
    world = proxied(tracer=tracer.requests)
    body = b'{"model":"small","text":"a"}'
    first = (
        f"POST {ECHO} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-one\r\ntraceparent: {PARENT}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    second = b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", world.port), 60) as line:
        line.sendall(first + second)
        answers = b"".join(iter(lambda: line.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b'"ready"' in answers
    probes = [asked for asked in world.upstream.asked if asked.path == "/v1/models"]
    assert [probe.header(b"traceparent") for probe in probes] == [None]
    assert {span.name for span in tracer.client()} == {f"upstream POST {ECHO}"}


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


def test_the_upstream_is_told_how_many_a_trace_stands_for(proxied: Any, traced: Any) -> None:
    tracer = traced(0.25)
    tracer.requests._draw = lambda: 0.0
    world = proxied(tracer=tracer.requests)
    for given, rest in (({}, ""), ({"traceparent": PARENT, "tracestate": "a=1,ot=th:8"}, ",a=1")):
        world.ask(str(rest), **given)
        state = (last(world).header(b"tracestate") or b"").decode()
        told_by = state.removeprefix("ot=").removesuffix(rest)
        assert state == f"ot={told_by}{rest}"
        assert weight_of(told_by) == 4.0
        threshold, number = told_by.removeprefix("th:").split(";rv:")
        assert int(number, 16) >= int(threshold.ljust(14, "0"), 16)


@pytest.mark.parametrize("weight", [1.0, 1.001, 3.0, 100.0, 1e9])
def test_weights_come_back(weight: float) -> None:
    assert weight_of(drawn(weight)) == pytest.approx(weight, rel=1e-6)


def test_under_load_fewer_are_drawn_and_stand_for_more() -> None:
    """Ten thousand requests a second for a minute; their sum is told right."""
    now, random = 0.0, Random(7)
    ended = Ended()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ended)
    requests = Requests(provider, 0.5, per_second=50.0, draw=random.random, clock=lambda: now)
    asked = 600_000
    for number in range(asked):
        now = number / 10_000
        if (request := requests.begin("POST", ECHO, [])) is not None:
            request.end(status=200)
    weights = [told(span)["cache.sampling.weight"] for span in ended.spans]
    assert weights[0] == 2.0
    assert len(weights) < 5000 + 60 * 100
    assert 0.9 * asked < sum(weights) < 1.1 * asked
    assert min(weights[-1000:]) > 50.0
