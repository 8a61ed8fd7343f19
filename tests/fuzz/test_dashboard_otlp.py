"""Whatever a sender sends is taken, refused as OTLP says, or taken in part; the store and every question go on."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.dashboard.store_world import HOUR_AGO, Sent, a_store, call, lookup, metrics_of, request_of

from mmcache.dashboard.app import Dashboard

SEED = request_of(lookup(HOUR_AGO, "expired", tenant="a", key="00000000000000ab")).SerializeToString()
METRICS = metrics_of("mmcache.tier.used", [(HOUR_AGO, 1.0)], {"tier": "memory"}).SerializeToString()
QUESTIONS = ("meta", "ratio?by=tenant", "reasons", "saved", "tiers", "keys", "requests?limit=500", "causes", "graph")
NAMES = ("cache.hit", "cache.outcome", "cache.miss.reason", "cache.tenant", "cache.modality", "cache.key.hash",
         "cache.content.id", "cache.signature", "cache.signature.model_version", "cache.saved_ms", "cache.bytes",
         "cache.sampling.weight", "cache.route", "http.route", "")  # fmt: skip
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(max_size=20) | st.sampled_from(["0" * 16, "f" * 16, "a" * 32, "miss", "hit"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("0af7651916cd43dd8448eb211c80319c"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value", "stringValue",
             "resource", "links", "startTimeUnixNano", "kvlistValue", "values", "status", "code", "doubleValue"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[tuple[asyncio.AbstractEventLoop, Dashboard]]:
    """One store for all inputs: what one leaves behind, the next meets."""
    loop = asyncio.new_event_loop()
    with a_store(body_bytes=1 << 20, inflated_bytes=1 << 20) as store:
        app = Dashboard(store)
        yield loop, app
        app.close()
    loop.close()


def sent(fuzzed: Any, body: bytes, kind: str = "application/x-protobuf", signal: str = "traces", **more: str) -> None:
    loop, app = fuzzed
    reply = loop.run_until_complete(
        call(app, f"/v1/{signal}", "POST", body=body, headers={"content-type": kind} | more)
    )
    assert reply.status in (200, 400, 413), reply
    sound(fuzzed)


def sound(fuzzed: Any) -> None:
    loop, app = fuzzed
    assert loop.run_until_complete(call(app, "/api/v1/meta")).status == 200


@pytest.fixture(autouse=True)
def _afterwards(fuzzed: Any) -> Iterator[None]:
    """All questions are answered, and every trace is shown."""
    yield
    loop, app = fuzzed
    for path in QUESTIONS:
        reply = loop.run_until_complete(
            call(app, f"/api/v1/{path}{'&' if '?' in path else '?'}from={HOUR_AGO}&to={HOUR_AGO + 7200}")
            if path != "meta" else call(app, "/api/v1/meta")
        )  # fmt: skip
        assert reply.status == 200, (path, reply.body)
        if path.startswith("requests"):
            for one in reply.json["requests"][:50]:
                shown = loop.run_until_complete(call(app, f"/api/v1/explain/{one['trace']}/{one['span']}"))
                assert shown.status == 200, shown.body


@settings(max_examples=60, derandomize=True)
@given(raw=st.binary(max_size=300), signal=st.sampled_from(["traces", "metrics", "logs"]), packed=st.booleans())
def test_bytes(fuzzed: Any, raw: bytes, signal: str, packed: bool) -> None:
    sent(
        fuzzed, gzip.compress(raw) if packed else raw, signal=signal, **({"content-encoding": "gzip"} if packed else {})
    )


@settings(max_examples=60, derandomize=True)
@given(data=st.data(), seed=st.sampled_from([("traces", SEED), ("metrics", METRICS)]), packed=st.booleans())
def test_messages_with_wrong_bytes(fuzzed: Any, data: st.DataObject, seed: tuple[str, bytes], packed: bool) -> None:
    signal, raw = seed[0], bytearray(gzip.compress(seed[1], mtime=0) if packed else seed[1])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)
    sent(fuzzed, body, signal=signal, **({"content-encoding": "gzip"} if packed else {}))


@settings(max_examples=60, derandomize=True)
@given(
    attributes=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8),
    name=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_attributes(fuzzed: Any, attributes: dict[str, Any], name: str) -> None:
    spans = [Sent("cache.lookup", attributes=attributes), Sent(name, attributes=attributes, resource=attributes)]
    sent(fuzzed, request_of(*spans).SerializeToString())


@settings(max_examples=60, derandomize=True)
@given(given_json=JSON, signal=st.sampled_from(["traces", "metrics", "logs"]))
def test_json(fuzzed: Any, given_json: Any, signal: str) -> None:
    sent(fuzzed, json.dumps(given_json).encode(), "application/json", signal)


@settings(max_examples=60, derandomize=True)
@given(
    path=st.sampled_from([*(one.split("?")[0] for one in QUESTIONS[1:]), "traces/", "explain/"]),
    query=st.lists(
        st.tuples(
            st.sampled_from(["from", "to", "by", "points", "top", "limit", "before", "tenant", "reason", "key", "x"]),
            st.text(max_size=20) | st.integers(0, 2**40).map(str)
            | st.sampled_from(["0" * 15 + "1", "tenant", "1-" + "a" * 16]),
        ),
        max_size=4,
    ),
)  # fmt: skip
def test_questions(fuzzed: Any, path: str, query: list[tuple[str, str]]) -> None:
    loop, app = fuzzed
    reply = loop.run_until_complete(call(app, f"/api/v1/{path}?{urlencode(query, errors='replace')}"))
    assert reply.status in (200, 400, 404), reply


@pytest.mark.parametrize("depth", [50, 100, 5_000, 200_000])
def test_depth(fuzzed: Any, depth: int) -> None:
    nested = '{"arrayValue":{"values":[' * depth + "]}}" * depth
    body = '{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":' + nested + "}]}}]}"
    sent(fuzzed, body.encode()[: 1 << 20], "application/json")
    raw = b"\x0a\x00"
    for _ in range(min(depth, 5_000)):  # AnyValue in an ArrayValue in an AnyValue…
        inner = b"\x2a" + length(len(raw)) + raw
        raw = b"\x0a" + length(len(inner)) + inner
    pair = b"\x0a\x01a\x12" + length(len(raw)) + raw
    group = b"\x0a" + length(len(pair) + 1 + len(length(len(pair)))) + b"\x0a" + length(len(pair)) + pair
    sent(fuzzed, b"\x0a" + length(len(group)) + group)


def length(number: int) -> bytes:
    """A varint."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
