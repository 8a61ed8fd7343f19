"""What OTLP says of a span, taken apart: the attributes that are asked for become columns, the rest stays JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mmcache.dashboard.values import REST, SHEET, clipped, digits, named, number, sheet, word

LOOKUP = "cache.lookup"
HITS = frozenset({"hit", "near", "stale"})
KINDS = ("unset", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
AHEAD_SECONDS = 3600
"""A span that begins so much later than now is of a wrong clock, and would never be the oldest."""
LONGEST_US = 2**32 - 1
_SIGNATURE = "cache.signature."


@dataclass(slots=True)
class Taken:
    """One span, ready for its columns."""

    trace: tuple[int, int]
    span: int
    parent: int
    start_us: int
    duration_us: int
    kind: int
    status: int
    lookup: bool
    hit: bool
    axes: tuple[str, ...]
    """Values of `rows.AXES`."""
    name: str
    tier: str
    client: str
    detail: str
    key: int
    content: tuple[int, int]
    signature: int
    saved_ms: float
    bytes: int
    weight: float
    origin: str
    """JSON of the resource's attributes, of many spans."""
    fields: str
    """JSON of the signature's fields, of many spans."""
    rest: str | None
    """JSON of all others."""


@dataclass(slots=True)
class Read:
    """What a request held."""

    spans: list[Taken] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Why, and how many."""


def spans_of(request: Any, now_us: int, oldest_us: int) -> Read:
    """Spans of an `ExportTraceServiceRequest`. What cannot be a span, or is of no time that is kept, is refused."""
    read = Read()
    newest_us = now_us + AHEAD_SECONDS * 1_000_000
    for resource, spans in _by_resource(request):
        service, instance = word(resource.get("service.name")), word(resource.get("service.instance.id"))
        origin = sheet(resource, SHEET)
        for given in spans:
            start_us = given.start_time_unix_nano // 1000
            if len(given.trace_id) != 16 or len(given.span_id) != 8 or not any(given.trace_id):
                read.refused["a trace id has 16 bytes, a span id 8, and not all of them 0"] += 1
            elif not oldest_us <= start_us <= newest_us:
                read.refused["it began before what is kept, or in the future"] += 1
            else:
                read.spans.append(_taken(given, start_us, service, instance, origin))
    return read


def _by_resource(request: Any) -> Iterator[tuple[dict[str, Any], Iterator[Any]]]:
    for group in request.resource_spans:
        spans = (span for scope in group.scope_spans for span in scope.spans)
        yield named(group.resource.attributes), spans


def _taken(given: Any, start_us: int, service: str, instance: str, origin: str) -> Taken:
    said = named(given.attributes)
    pop = said.pop
    fields = [name for name in said if name.startswith(_SIGNATURE)]
    shared = sheet({name: pop(name) for name in fields}, SHEET) if fields else ""
    outcome = word(pop("cache.outcome", None))
    hit = pop("cache.hit", None)
    name = clipped(given.name, 200)
    lookup = name == LOOKUP
    hit = hit if isinstance(hit, bool) else outcome in HITS
    if lookup and not outcome:
        outcome = "hit" if hit else "miss"
    reason = word(pop("cache.miss.reason", None))
    if lookup and not hit and not reason:
        reason = "absent"
    content, key = pop("cache.content.id", None), pop("cache.key.hash", None)
    both, signature = digits(content, 32), pop("cache.signature", None)
    for attribute, value, length in (("content.id", content, 32), ("key.hash", key, 16), ("signature", signature, 16)):
        if value is not None and not digits(value, length):
            said[f"cache.{attribute}"] = value  # none of ours: it is shown, and not looked for
    weight = number(pop("cache.sampling.weight", None), 1e9)
    if given.status.message:
        said["status.message"] = clipped(given.status.message, 500)
    axes = (
        word(pop("cache.modality", None)),
        word(pop("cache.route", None)),
        word(pop("cache.tenant", None)),
        word(pop("cache.client.region", None)),
        word(pop("cache.strategy", None)),
        service,
        instance,
        outcome,
        "" if lookup and hit else reason,
    )
    return Taken(
        (int.from_bytes(given.trace_id[:8]), int.from_bytes(given.trace_id[8:])),
        int.from_bytes(given.span_id),
        int.from_bytes(given.parent_span_id) if len(given.parent_span_id) == 8 else 0,
        start_us,
        min(max(given.end_time_unix_nano // 1000 - start_us, 0), LONGEST_US),
        given.kind if 0 <= given.kind < len(KINDS) else 0,
        given.status.code if 0 <= given.status.code < len(STATUSES) else 0,
        lookup,
        hit,
        axes,
        name,
        word(pop("cache.tier", None)),
        word(pop("cache.client", None)),
        word(pop("cache.miss.detail", None)),
        digits(key, 16),
        (both >> 64, both & 0xFFFFFFFFFFFFFFFF),
        digits(signature, 16),
        number(pop("cache.saved_ms", None), 1e12),
        int(number(pop("cache.bytes", None), 2.0**50)),
        weight or 1.0,
        origin,
        shared,
        sheet(said, REST) if said else None,
    )
