"""OTLP over HTTP: what is taken, what is refused and how; what is taken is on the disk."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
import time
from typing import Any

import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from tests.unit.dashboard.store_world import (
    HOUR_AGO,
    Reply,
    Sent,
    a_store,
    call,
    identified,
    lookup,
    metrics_of,
    request_of,
)

from mmcache.dashboard import weighing
from mmcache.dashboard.app import Dashboard

PROTOBUF, JSON = "application/x-protobuf", "application/json"
EVICTED = [5.0, 5.0, 8.0, 8.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]
NAMES = ("traceId", "spanId", "parentSpanId")


def as_otlp_json(message: Any) -> bytes:
    """As OTLP writes JSON: identifiers are hex."""
    given = json_format.MessageToDict(message, use_integers_for_enums=True)

    def hexed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: base64.b64decode(v).hex() if k in NAMES else hexed(v) for k, v in value.items()}
        return [hexed(one) for one in value] if isinstance(value, list) else value

    return json.dumps(hexed(given)).encode()


async def send(app: Dashboard, body: bytes, kind: str = PROTOBUF, path: str = "/v1/traces", **more: str) -> Reply:
    return await call(app, path, "POST", body=body, headers={"content-type": kind} | more)


async def requests(app: Dashboard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await call(app, "/api/v1/requests", from_=HOUR_AGO, to=HOUR_AGO + 3600)).json[
        "requests"
    ]
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_both_encodings_with_and_without_gzip(app: Dashboard, kind: str, packed: bool) -> None:
    one = lookup(HOUR_AGO + 1, "expired", tenant="a", key="00000000000000ab", weight=10.0)
    request = request_of(one)
    body = request.SerializeToString() if kind == PROTOBUF else as_otlp_json(request)
    headers = {"content-encoding": "gzip"} if packed else {}
    reply = await send(app, gzip.compress(body) if packed else body, kind + "; charset=utf-8", **headers)
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    if kind == PROTOBUF:
        assert not ExportTraceServiceResponse.FromString(reply.body).HasField("partial_success")
    else:
        assert reply.json == {}
    (found,) = await requests(app)
    assert (found["trace"], found["span"]) == (one.trace.hex(), one.span.hex())
    assert (found["tenant"], found["reason"], found["key"]) == ("a", "expired", "00000000000000ab")


async def test_a_collector_may_join_gzip_members(app: Dashboard) -> None:
    body = request_of(lookup()).SerializeToString()
    both = gzip.compress(body[:20]) + gzip.compress(body[20:])
    assert (await send(app, both, **{"content-encoding": "gzip"})).status == 200
    assert len(await requests(app)) == 1


async def test_spans_that_cannot_be_are_refused_and_the_others_kept(app: Dashboard) -> None:
    wrong = [
        Sent(trace=b"short", span=b"12345678"), Sent(trace=b"t" * 16, span=b"123"), Sent(trace=bytes(16)),
        Sent(at=time.time() + 86400), Sent(at=1000.0), Sent(at=0.0),
    ]  # fmt: skip
    reply = await send(app, request_of(*wrong, lookup()).SerializeToString())
    assert reply.status == 200
    told = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert told.rejected_spans == 6
    assert "3 spans" in told.error_message
    assert len(await requests(app)) == 1


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status"),
    [
        (b"\xff\xff\xff", PROTOBUF, {}, 400),
        (b"{", JSON, {}, 400),
        (b"[]", JSON, {}, 400),
        (b'{"resourceSpans": 5}', JSON, {}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "x"}]}]}]}', JSON, {}, 400),
        (b"\xff\xfe", JSON, {}, 400),
        (b'{"resourceSpans": [{"schemaUrl": "\\ud800"}]}', JSON, {}, 400),
        (b"x", PROTOBUF, {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], PROTOBUF, {"content-encoding": "gzip"}, 400),
        (b"", PROTOBUF, {"content-encoding": "br"}, 415),
        (b"", "text/plain", {}, 415),
        (b"", "", {}, 415),
        (b"x" * 2000, PROTOBUF, {}, 413),
        (gzip.compress(bytes(1 << 20), mtime=0), PROTOBUF, {"content-encoding": "gzip"}, 413),
        (gzip.compress(bytes(3000), mtime=0) * 2, PROTOBUF, {"content-encoding": "gzip"}, 413),
        (b"", PROTOBUF, {"content-length": "999999999999999999999999"}, 413),
    ],
)
async def test_what_is_refused_says_why_in_the_senders_encoding(
    body: bytes, kind: str, headers: dict[str, str], status: int
) -> None:
    with a_store(body_bytes=1200, inflated_bytes=4000) as store:
        app = Dashboard(store)
        reply = await send(app, body, kind, **headers)
        assert reply.status == status
        assert "retry-after" not in reply.headers
        told = json_format.Parse(reply.body, Status()) if kind == JSON else Status.FromString(reply.body)
        assert told.message
        assert told.code
        assert (await send(app, request_of(lookup()).SerializeToString())).status == 200
        app.close()


async def test_deep_and_huge_values_are_cut(app: Dashboard) -> None:
    deep: Any = "bottom"
    for _ in range(40):
        deep = [deep]
    one = lookup(tenant="t" * 100_000, route=5, modality=["a"])
    one.attributes |= {
        "deep": deep, "long": "x" * 1_000_000, "wide": list(range(10_000)), "raw": b"\xff" * 10, "nan": float("nan"),
        "n" * 5000: 1, "map": {"a": {"b": 1.5}}, **{f"many{at}": at for at in range(1000)},
    }  # fmt: skip
    assert (await send(app, request_of(one).SerializeToString())).status == 200
    (found,) = await requests(app)
    assert len(found["tenant"]) <= 200
    assert (found["route"], found["modality"]) == ("5", '["a"]' if found["modality"].startswith('["') else "['a']")
    reply = await call(app, f"/api/v1/traces/{one.trace.hex()}")
    said = reply.json["spans"][0]["attributes"]
    assert said["nan"] == "nan"
    assert said["map"] == {"a": {"b": 1.5}}
    assert len(said["long"]) <= 4096
    assert len(reply.body) < 200_000


def field(number: int, body: bytes) -> bytes:
    """Of protobuf's wire format."""
    size, length = len(body), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (field(1, b"") * 1_500_000, PROTOBUF),
        (field(1, field(2, field(2, b"") * 1_500_000)), PROTOBUF),
        (field(1, field(2, field(2, field(9, b"") * 1_500_000))), PROTOBUF),
        (b'{"resourceSpans": [' + b"{}," * 1_500_000 + b"{}]}", JSON),
        (b'{"x": [' + b"[]," * 1_500_000 + b"[]]}", JSON),
    ],
)
async def test_a_body_of_millions_of_parts_is_not_read(app: Dashboard, body: bytes, kind: str) -> None:
    reply = await send(app, gzip.compress(body, 1), kind, **{"content-encoding": "gzip"})
    assert reply.status == 413
    assert "retry-after" not in reply.headers


async def test_a_large_body_of_a_collector_is_taken(app: Dashboard) -> None:
    many = request_of(*(lookup(note="x" * 3000) for _ in range(2000)))
    assert many.ByteSize() > weighing.LIGHT
    assert (await send(app, gzip.compress(many.SerializeToString(), 1), **{"content-encoding": "gzip"})).status == 200
    assert (await send(app, many.SerializeToString()[:-3])).status == 400
    assert app.store.came.spans == 2000


async def test_what_spans_share_and_what_they_have_is_bounded(app: Dashboard) -> None:
    large = {f"attribute {at}": "x" * 4000 for at in range(100)}
    one = lookup(tenant="a")
    one.attributes |= large | {f"cache.signature.field{at}": "y" * 4000 for at in range(20)}
    one.resource = {"service.name": "mmcache", **large}
    assert (await send(app, request_of(one).SerializeToString())).status == 200
    reply = await call(app, f"/api/v1/traces/{one.trace.hex()}")
    (span,) = reply.json["spans"]
    assert (span["service"], span["attributes"]["cache.tenant"]) == ("mmcache", "a")
    assert span["attributes"]["…"].endswith(" more")
    assert len(reply.body) < 100_000


async def test_labels_of_a_series_are_bounded(app: Dashboard) -> None:
    labels = {f"label{at}": "x" * 200 for at in range(100)}
    body = metrics_of("mmcache.tier.used", [(HOUR_AGO, 1.0)], {"tier": "memory"} | labels).SerializeToString()
    assert (await send(app, body, path="/v1/metrics")).status == 200
    assert (await call(app, "/api/v1/tiers", from_=HOUR_AGO, to=HOUR_AGO + 60)).json["tiers"] == []


async def test_columns_of_no_sense_are_kept_as_attributes(app: Dashboard) -> None:
    one = lookup(key="<script>alert(1)</script>", content="12", signature="xyz", saved_ms=float("inf"), bytes=-5)
    one.attributes["cache.sampling.weight"] = float("nan")
    await send(app, request_of(one).SerializeToString())
    (found,) = await requests(app)
    assert found["key"] == ""
    said = (await call(app, f"/api/v1/traces/{one.trace.hex()}")).json["spans"][0]["attributes"]
    assert said["cache.key.hash"] == "<script>alert(1)</script>"
    assert (said["cache.content.id"], said["cache.signature"]) == ("12", "xyz")
    saved = (await call(app, "/api/v1/saved", from_=HOUR_AGO, to=HOUR_AGO + 60)).json
    assert (saved["total_seconds"], saved["total_bytes"]) == (0, 0)


async def test_spans_of_others_are_part_of_the_trace(app: Dashboard) -> None:
    root = identified(Sent("checkout", attributes={"shop.basket": 3}, resource={"service.name": "shop"}, kind=2))
    child = lookup(HOUR_AGO + 0.01)
    child.trace, child.parent = root.trace, root.span
    late = Sent("cache.compute", HOUR_AGO + 0.02, trace=root.trace, parent=child.span)
    await send(app, request_of(child, late).SerializeToString())
    await send(app, request_of(root).SerializeToString())
    spans = (await call(app, f"/api/v1/traces/{root.trace.hex()}")).json["spans"]
    assert [(one["name"], one["parent"], one["kind"]) for one in spans] == [
        ("checkout", None, "server"),
        ("cache.lookup", root.span.hex(), "internal"),
        ("cache.compute", child.span.hex(), "internal"),
    ]
    assert spans[0]["service"] == "shop"
    assert spans[0]["attributes"]["shop.basket"] == 3


async def test_a_full_queue_tells_senders_to_come_again() -> None:
    with a_store(queue_spans=10) as store:
        app = Dashboard(store)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go.wait(60)

        holding = store.between(hold)
        await asyncio.to_thread(held.wait, 60)
        ten = request_of(*(lookup() for _ in range(10))).SerializeToString()
        first = asyncio.ensure_future(send(app, ten))
        try:
            while not store._waiting:
                await asyncio.sleep(0.01)
            reply = await send(app, request_of(lookup()).SerializeToString())
            assert (reply.status, reply.headers["retry-after"]) == (503, "2")
            assert Status.FromString(reply.body).code == 14
            assert not first.done()  # it is told when what it sent is written
        finally:
            go.set()
        assert (await first).status == 200
        holding.result()
        app.close()


async def test_a_store_that_cannot_write_is_said_and_recovers(app: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    one = request_of(lookup()).SerializeToString()
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise OSError("no space left on device")

        broken.setattr("mmcache.dashboard.store.insert", fail)
        reply = await send(app, one)
        assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    assert (await send(app, one)).status == 200
    assert len(await requests(app)) == 1


async def test_ingest_may_ask_for_a_token() -> None:
    with a_store(ingest_token="ingest-token") as store:
        app = Dashboard(store)
        body = request_of(lookup()).SerializeToString()
        assert (await send(app, body)).status == 401
        assert (await send(app, body, authorization="Bearer ingest-toke")).status == 401
        assert (await send(app, body, authorization="Bearer ingest-token")).status == 200
        app.close()


async def test_logs_are_counted_and_dropped(app: Dashboard) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "a prompt"
    assert (await send(app, request.SerializeToString(), path="/v1/logs")).status == 200
    assert (await call(app, "/healthz")).json["received"]["logs"] == 1


async def test_gauges_and_counters_are_shown_by_tier(app: Dashboard) -> None:
    labels = {"tier": "memory"}
    times = [HOUR_AGO + 60 * at for at in range(10)]
    sent = [
        metrics_of("mmcache.tier.used", [(t, 100.0 + at) for at, t in enumerate(times) if at != 5], labels),
        metrics_of("mmcache.tier.limit", [(times[0], 1000.0)], labels),
        metrics_of("mmcache.tier.blocks", [(times[0], 7.0)], labels),
        metrics_of("mmcache.evictions", [*zip(times, EVICTED, strict=True)], labels | {"reason": "no"}, temporality=2),
        metrics_of("mmcache.evictions", [(t, 1.0) for t in times], labels | {"reason": "age"}, temporality=1),
        metrics_of("other.gauge", [(times[0], 1.0)], {}),
        metrics_of("mmcache.tier.used", [(times[0], float("nan"))], {"tier": "disk"}),
    ]  # fmt: skip
    for request in sent:
        assert (await send(app, request.SerializeToString(), path="/v1/metrics")).status == 200
    reply = await call(app, "/api/v1/tiers", from_=HOUR_AGO, to=HOUR_AGO + 600, points=10)
    (tier,) = reply.json["tiers"]
    assert (tier["service"], tier["instance"], tier["tier"], tier["limit"]) == ("mmcache", "one", "memory", 1000.0)
    assert tier["used"] == [100, 101, 102, 103, 104, 104, 106, 107, 108, 109]
    assert tier["evictions"] == [0, 1, 4, 1, 3, 1, 1, 1, 1, 2]  # a restart counts from 0
    assert (await call(app, "/api/v1/tiers", from_=HOUR_AGO, to=HOUR_AGO + 600, instance="two")).json["tiers"] == []


async def test_points_of_no_time_that_is_kept_are_refused(app: Dashboard) -> None:
    body = metrics_of("mmcache.tier.used", [(5.0, 1.0)], {}).SerializeToString()
    reply = await send(app, body, path="/v1/metrics")
    assert ExportMetricsServiceResponse.FromString(reply.body).partial_success.rejected_data_points == 1
