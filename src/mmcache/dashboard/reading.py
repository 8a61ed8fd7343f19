"""Spans as rows: numbers become texts again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mmcache.dashboard.counting import View
from mmcache.dashboard.dictionary import Dictionary
from mmcache.dashboard.rows import AXES, SpanRow
from mmcache.dashboard.taken import KINDS, STATUSES

COLUMNS = (
    "trace_hi, trace_lo, span, parent, start_us, duration_us, kind, status, facet, name, tier, client, detail, key,"
    " content_hi, content_lo, signature, saved_ms, bytes, weight, origin, fields, rest"
)
_ATTRIBUTES = {
    "modality": "cache.modality", "route": "cache.route", "tenant": "cache.tenant", "region": "cache.client.region",
    "strategy": "cache.strategy", "outcome": "cache.outcome", "reason": "cache.miss.reason", "tier": "cache.tier",
    "client": "cache.client", "detail": "cache.miss.detail", "key": "cache.key.hash",
    "content_id": "cache.content.id", "signature": "cache.signature", "saved_ms": "cache.saved_ms",
    "bytes": "cache.bytes",
}  # fmt: skip
"""Columns, and the attributes that they were."""


def spans(view: View, where: str, order: str, most: int, values: Sequence[Any]) -> list[SpanRow]:
    """Spans in an order. The texts are ours; values are bound. First which, by few columns, then all columns of those:
    so that not every column is read of what is not shown."""
    found = view.cursor.execute(f"SELECT rowid FROM spans WHERE {where} ORDER BY {order} LIMIT {int(most)}", values)
    return numbered(view, [row for (row,) in found.fetchall()], order)


def numbered(view: View, rows: Sequence[int], order: str) -> list[SpanRow]:
    """Spans of these rows."""
    if not rows:
        return []
    query = f"SELECT {COLUMNS} FROM spans WHERE rowid IN (SELECT unnest($1::BIGINT[])) ORDER BY {order}"
    return rows_of(view, view.cursor.execute(query, [list(rows)]).fetchall())


def rows_of(view: View, found: Sequence[Sequence[Any]]) -> list[SpanRow]:
    """Of what a query for `COLUMNS` found."""
    return [_row(view.known, cells) for cells in found]


def _row(known: Dictionary, cells: Sequence[Any]) -> SpanRow:
    (high, low, span, parent, start_us, duration_us, kind, status, facet, name, tier, client, detail, key, content_hi,
     content_lo, signature, saved_ms, size, weight, origin, fields, rest) = cells  # fmt: skip
    lookup, hit, *axes = known.facets.rows[facet]
    words = known.words
    said = {axis: words[axis].texts[word] for axis, word in zip(AXES, axes, strict=True)}
    said |= {
        "tier": words["tier"].texts[tier],
        "client": words["client"].texts[client],
        "detail": words["detail"].texts[detail],
        "key": f"{key:016x}" if key else "",
        "content_id": f"{content_hi:016x}{content_lo:016x}" if content_hi or content_lo else "",
        "signature": f"{signature:016x}" if signature else "",
    }
    attributes = dict(_attributes(known, origin, fields, rest))
    values = {**said, "saved_ms": saved_ms, "bytes": size}
    attributes |= {name: values[column] for column, name in _ATTRIBUTES.items() if values[column]}
    if lookup:
        attributes["cache.hit"] = bool(hit)
    if weight != 1.0:
        attributes["cache.sampling.weight"] = weight
    return SpanRow(
        f"{high:016x}{low:016x}", f"{span:016x}", f"{parent:016x}" if parent else "", words["name"].texts[name],
        KINDS[kind], start_us / 1e6, duration_us / 1e3, status=STATUSES[status], lookup=bool(lookup), hit=bool(hit),
        saved_ms=saved_ms, bytes=size, weight=weight, attributes=attributes, **said,
    )  # fmt: skip


def _attributes(known: Dictionary, origin: int, fields: int, rest: str | None) -> Iterator[tuple[str, Any]]:
    for text in (known.sheets.texts[origin], known.sheets.texts[fields], rest):
        if text:
            yield from msgspec.json.decode(text).items()


def fields_of(view: View, sheet: int) -> dict[str, str]:
    """A signature's fields, without their prefix."""
    text = view.known.sheets.texts[sheet]
    said = msgspec.json.decode(text) if text else {}
    return {name.removeprefix("cache.signature."): str(value) for name, value in said.items()}
