"""Spans as senders send them, a store to put them in, and an ASGI client without sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.store import Store
from mmcache.dashboard.taken import spans_of
from mmcache.settings import DashboardSettings

HOUR_AGO = time.time() // 3600 * 3600 - 3600
"""Start of an hour that is over: what is put there may be counted."""


@dataclass
class Sent:
    """One span, before it is sent."""

    name: str = "cache.lookup"
    at: float = HOUR_AGO
    trace: bytes = b""
    span: bytes = b""
    parent: bytes = b""
    seconds: float = 0.001
    attributes: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=lambda: {"service.name": "mmcache", "service.instance.id": "one"})
    kind: int = 1


_count = 0


def identified(one: Sent) -> Sent:
    """With ids of its own where it has none."""
    global _count
    _count += 1
    one.trace = one.trace or (b"t" * 8 + _count.to_bytes(8))
    one.span = one.span or (b"s" + _count.to_bytes(7))
    return one


def lookup(at: float = HOUR_AGO, reason: str = "", weight: float = 1.0, instance: str = "one", **said: Any) -> Sent:
    """A lookup: a hit, or a miss for a reason. said: attributes, `tenant="a"` for `cache.tenant`."""
    names = {"reason": "miss.reason", "region": "client.region", "key": "key.hash", "content": "content.id"}
    attributes = {f"cache.{names.get(name, name)}": value for name, value in said.items()}
    attributes |= {"cache.hit": not reason, "cache.outcome": "miss" if reason else "hit"}
    if reason:
        attributes["cache.miss.reason"] = reason
    if weight != 1.0:
        attributes["cache.sampling.weight"] = weight
    resource = {"service.name": "mmcache", "service.instance.id": instance}
    return identified(Sent(at=at, attributes=attributes, resource=resource))


def put_value(value: Any, given: Any) -> None:
    """Into an `AnyValue`."""
    match given:
        case bool():
            value.bool_value = given
        case int():
            value.int_value = given
        case float():
            value.double_value = given
        case str():
            value.string_value = given
        case bytes():
            value.bytes_value = given
        case list():
            value.array_value.SetInParent()
            for one in given:
                put_value(value.array_value.values.add(), one)
        case dict():
            value.kvlist_value.SetInParent()
            put_all(value.kvlist_value.values, given)


def put_all(pairs: Any, given: Mapping[str, Any]) -> None:
    """Attributes."""
    for name, said in given.items():
        pair = pairs.add(key=name)
        put_value(pair.value, said)


def request_of(*spans: Sent) -> Any:
    """An `ExportTraceServiceRequest`."""
    request = ExportTraceServiceRequest()
    for one in map(identified, spans):
        group = request.resource_spans.add()
        put_all(group.resource.attributes, one.resource)
        span = group.scope_spans.add().spans.add(
            trace_id=one.trace, span_id=one.span, parent_span_id=one.parent, name=one.name, kind=one.kind,
            start_time_unix_nano=round(one.at * 1e6) * 1000,
            end_time_unix_nano=round((one.at + one.seconds) * 1e6) * 1000,
        )  # fmt: skip
        put_all(span.attributes, one.attributes)
    return request


def metrics_of(
    name: str, points: list[tuple[float, float]], labels: Mapping[str, str], instance: str = "one", temporality: int = 0
) -> Any:
    """An `ExportMetricsServiceRequest` with one series: a gauge, or a sum of a temporality."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    put_all(group.resource.attributes, {"service.name": "mmcache", "service.instance.id": instance})
    metric = group.scope_metrics.add().metrics.add(name=name)
    if temporality:
        metric.sum.aggregation_temporality = temporality
    data = metric.sum.data_points if temporality else metric.gauge.data_points
    for at, value in points:
        point = data.add(time_unix_nano=int(at * 1e9), as_double=value)
        put_all(point.attributes, labels)
    return request


@contextmanager
def a_store(path: Any = ":memory:", **settings: Any) -> Iterator[Store]:
    """Closed at the end."""
    notices: list[str] = []
    store = Store(DashboardSettings(str(path), **settings), notices.append)
    try:
        yield store
    finally:
        store.close()


def put(store: Store, *spans: Sent) -> None:
    """As if they had been received, and written."""
    read = spans_of(request_of(*spans), int((time.time() + 60) * 1e6), 0)
    assert not read.refused
    store.put(read.spans).result()


def settled(store: Store) -> None:
    """All slices that can be are closed."""
    while store.between(store.slices.due).result() is not None:
        pass


@dataclass
class Reply:
    """Of the application."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


async def call(
    app: Dashboard, path: str, method: str = "GET", *, body: bytes = b"", headers: Mapping[str, str] | None = None,
    **query: Any,
) -> Reply:  # fmt: skip
    """One request. query: `from_=1` for `from`; a list = several."""
    pairs = [(k.rstrip("_"), v) for k, vs in query.items() for v in (vs if isinstance(vs, list) else [vs])]
    path, _, more = path.partition("?")
    given = {"host": "localhost:4318"} | {name.lower(): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": (more or urlencode(pairs)).encode(), "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 4318),
    }  # fmt: skip
    sent: list[Any] = []
    pieces = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(pieces, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], answered, b"".join(one.get("body", b"") for one in sent[1:]))
