"""Our encoder and the SDK's say the same, whatever a span says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.proto")

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from mmcache.telemetry.wire import Wire, varint

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.sampled_from(["cache.hit", "cache.tier", "a", "ü", "x" * 200])
VALUES = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXT,
    st.sampled_from([0, 1, 0.0, 1.0, ""]), st.lists(st.integers(0, 9), max_size=3),
)  # fmt: skip
CONTEXTS = st.builds(
    SpanContext, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans(), st.sampled_from([TraceFlags(1)]),
    st.sampled_from([None, TraceState([("ot", "th:8"), ("a", "b")])]),
)  # fmt: skip
RESOURCES = [Resource({"service.name": "a", "process.pid": 7}), Resource({}, schema_url="http://schema")]
SCOPES = [None, InstrumentationScope("mmcache"), InstrumentationScope("other", "1.0", "http://s", {"k": True})]
ENDS = [Status(StatusCode.OK), Status(StatusCode.ERROR), Status(StatusCode.ERROR, "bad")]
SPANS = st.builds(
    ReadableSpan, TEXT, CONTEXTS, st.none() | CONTEXTS, st.sampled_from(RESOURCES), st.dictionaries(NAMES, VALUES),
    events=st.sampled_from([(), (), (Event("happened", {"a": 1}, 5),)]),
    links=st.sampled_from([(), (), (Link(SpanContext(1, 2, True)),)]), kind=st.sampled_from(SpanKind),
    status=st.sampled_from([Status(), *ENDS]),
    start_time=st.integers(0, 2**63), end_time=st.integers(0, 2**63), instrumentation_scope=st.sampled_from(SCOPES),
)  # fmt: skip


def by_span(request: Any) -> list[tuple[Any, ...]]:
    """Each span with where it stands, in an order of its own: groups may be cut otherwise."""
    found = [
        (resources.resource.SerializeToString(deterministic=True), resources.schema_url,
         scopes.scope.SerializeToString(deterministic=True), scopes.schema_url,
         span.SerializeToString(deterministic=True))
        for resources in request.resource_spans for scopes in resources.scope_spans for span in scopes.spans
    ]  # fmt: skip
    return sorted(found)


WIRE = Wire()
"""One for all examples: what it remembers must not change what it says."""


@given(st.lists(SPANS, max_size=6))
def test_both_encoders_say_the_same(spans: Sequence[ReadableSpan]) -> None:
    ours = ExportTraceServiceRequest.FromString(WIRE.encode(spans))
    assert by_span(ours) == by_span(encode_spans(spans))


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_as_protobuf_has_them(number: int) -> None:
    from google.protobuf.internal.encoder import _VarintBytes

    assert varint(number) == _VarintBytes(number)


def test_what_is_remembered_is_bounded() -> None:
    wire = Wire()
    for n in range(2_000):
        context = SpanContext(1, 2, False)
        wire.encode(
            [
                ReadableSpan(
                    f"name {n}", context, None, RESOURCES[0], {f"k{n}": "v", "k": f"v{n}"}, start_time=1, end_time=2
                )
            ]
        )
    assert len(wire._texts) <= 512
    assert len(wire._names) <= 512
    assert max(map(len, wire._texts.values())) <= 256


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70), "\ud800", "a\0b", "x" * 10_000_000])
@pytest.mark.parametrize("name", ["k", "k\ud800"])
def test_what_hostile_spans_say_is_what_the_sdk_makes_of_it(
    name: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")  # the SDK's own words about it
    context = SpanContext(1, 2, False)
    spans = [
        ReadableSpan("n", context, None, RESOURCES[0], told, start_time=1, end_time=2)
        for told in ({"fine": "yes"}, {name: value})
    ]
    ours = ExportTraceServiceRequest.FromString(Wire().encode(spans))
    assert by_span(ours) == by_span(encode_spans(spans))


def test_large_values_are_not_remembered() -> None:
    wire, large = Wire(), "x" * 100_000
    wire.encode(
        [
            ReadableSpan(
                large, SpanContext(1, 2, False), None, RESOURCES[0], {"k": large, large: True}, start_time=1, end_time=2
            )
        ]
    )
    remembered = [
        *wire._names.values(),
        *wire._heads.values(),
        *(v for known in wire._texts.values() for v in known.values()),
    ]
    assert max(map(len, remembered), default=0) <= 256
