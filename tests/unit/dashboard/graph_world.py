"""Views of hot keys by rule, and the log records that bring them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from tests.unit.dashboard.store_world import put_all

from mmcache.hotkeys.view import EVENT_NAME, Community, HotEdge, HotKey, HotView, encode

MODALITIES, TENANTS = ("text", "image", "audio"), ("shop", "search")


def name(number: int) -> str:
    """A key's."""
    return f"{(number + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:016x}"


def key(number: int, community: int = 1, **more: Any) -> HotKey:
    said: dict[str, Any] = {
        "score": 100.0 / (number + 1), "parts": {"attention": 0.7, "divergence": 0.3}, "heat": 50.0 / (number + 1),
        "modality": MODALITIES[number % 3], "tenant": TENANTS[number % 2], "tier": "memory", "bytes": 4096,
        "expected_hours": 12.0, "confidence": 0.75, "community": community,
    }  # fmt: skip
    return HotKey(key=name(number), **said | more)


def community(number: int, state: Any = "living", since: float = 1000.0, **more: Any) -> Community:
    return Community(**{"id": number, "size": 4, "weight": 2.0, "state": state, "since": since} | more)


def view(keys: list[HotKey], edges: list[tuple[int, int, float]] = [], **more: Any) -> HotView:  # noqa: B006
    said: dict[str, Any] = {"at": 5000.0, "service": "mmcache", "instance": "one", "tracked_keys": 900}
    return HotView(keys=keys, edges=[HotEdge(*edge) for edge in edges], **said | {"tracked_edges": 4000} | more)


def full(instance: str = "one", shift: int = 0) -> HotView:
    """The largest that there is: 200 keys, 600 edges, 20 communities."""
    keys = [key(at + shift, at // 10 + 1) for at in range(200)]
    edges = [(at % 200, (at * 7 + at // 200 + 1) % 200, 1.0 + at % 9) for at in range(600)]
    return view(keys, edges, instance=instance, communities=[community(at + 1, size=10) for at in range(20)])


def logs_of(
    *bodies: str | bytes, resource: Mapping[str, str] | None = None, event: str = EVENT_NAME, attribute: str = ""
) -> Any:
    """An `ExportLogsServiceRequest`, a record a body."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    put_all(group.resource.attributes, resource or {})
    records = group.scope_logs.add().log_records
    for body in bodies:
        record = records.add(event_name=event)
        if attribute:
            put_all(record.attributes, {"event.name": attribute})
        if isinstance(body, bytes):
            record.body.bytes_value = body
        else:
            record.body.string_value = body
    return request


def text(said: HotView) -> str:
    return encode(said).decode()
