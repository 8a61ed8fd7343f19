"""Rows about one span, for `explained`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmcache.dashboard import browse
from mmcache.dashboard.asking import WrongQuestionError
from mmcache.dashboard.counting import View
from mmcache.dashboard.dictionary import Facets
from mmcache.dashboard.reading import fields_of, spans
from mmcache.dashboard.rows import ExplainRows, InstanceRow, SignatureRow, SpanRow, Window
from mmcache.dashboard.taken import LOOKUP
from mmcache.dashboard.values import digits
from mmcache.model.errors import DashboardError

BEFORE, AFTER = 3600.0, 600.0
"""Seconds around a span, in which others' misses are counted."""
EARLIER, LATER = 50, 10


def of_span(view: View, trace: str, name: str) -> ExplainRows:
    """About one span. Raises `DashboardError` (404)."""
    if not digits(name, 16):
        raise WrongQuestionError("a span is 16 hex digits")
    whole = browse.spans_of_trace(view, trace)
    span = next((one for one in whole if one.span == name), None)
    if span is None:
        raise DashboardError("no such span is kept", status=404, code="unknown")
    window = Window(span.start - BEFORE, span.start + AFTER)
    return ExplainRows(
        span,
        whole,
        _same(view, span, "start_us < $1", "DESC", EARLIER),
        _same(view, span, "start_us > $1", "ASC", LATER),
        window,
        _spread(view, span, window) if span.lookup and not span.hit else (),
        _signatures(view, span, window) if span.lookup and not span.hit else (),
    )


def _same(view: View, span: SpanRow, when: str, order: str, most: int) -> Sequence[SpanRow]:
    """Lookups and puts of the same content, of the same tenant: another's say nothing. The texts are ours."""
    words = [view.known.words["name"].find(name) or 0 for name in (LOOKUP, "cache.put")]
    values: list[Any] = [round(span.start * 1e6), *words]
    if content := digits(span.content_id, 32):
        same, values = "content_hi = $4 AND content_lo = $5", [*values, content >> 64, content & 0xFFFFFFFFFFFFFFFF]
    elif key := digits(span.key, 16):
        same, values = "key = $4", [*values, key]
    else:
        return ()
    tenant = Facets.COLUMNS.index("tenant")
    own = np.flatnonzero(view.known.facets.table()[:, tenant] == (view.known.words["tenant"].find(span.tenant) or 0))
    view.cursor.register("own", {"facet": own.astype(np.uint32)})
    try:
        some = f"{same} AND {when} AND name IN ($2, $3) AND facet IN (SELECT facet FROM own)"
        found = spans(view, some, f"start_us {order}, span", most, values)
    finally:
        view.cursor.unregister("own")
    return [row for row in found if row.span != span.span]


def _spread(view: View, span: SpanRow, window: Window) -> Sequence[InstanceRow]:
    signature = digits(span.signature, 16) if span.reason == "signature" else 0
    rows = view.cursor.execute(
        "SELECT facet, sum(weight), sum(CASE WHEN $3 = 0 OR signature = $3 THEN weight ELSE 0 END),"
        " min(CASE WHEN $3 = 0 OR signature = $3 THEN start_us END)"
        " FROM spans WHERE start_us >= $1 AND start_us < $2 GROUP BY facet",
        [int(window.start * 1e6), int(window.end * 1e6), signature],
    ).fetchall()
    found: dict[tuple[str, str], list[Any]] = {}
    for facet, weight, same, first in rows:
        said = _facet(view, facet)
        if not said["lookup"] or said["modality"] != span.modality:
            continue
        told = found.setdefault((said["service"], said["instance"]), [0.0, 0.0, None])
        if said["hit"]:
            told[1] += weight
        elif said["reason"] == span.reason and same:
            told[0] += same
            told[2] = first / 1e6 if told[2] is None else min(told[2], first / 1e6)
    order = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    return [InstanceRow(*name, *told) for name, told in order]


def _signatures(view: View, span: SpanRow, window: Window) -> Sequence[SignatureRow]:
    at = round(span.start * 1e6)
    mine = [
        facet
        for facet, row in enumerate(view.known.facets.rows)
        if row[0] and (said := _facet(view, facet))["service"] == span.service and said["modality"] == span.modality
    ]
    view.cursor.register("mine", {"facet": np.array(mine, np.uint32)})
    try:
        rows = view.cursor.execute(
            "SELECT facet, signature, max(fields), start_us >= $3 AS since, sum(weight), min(start_us), max(start_us)"
            " FROM spans WHERE start_us >= $1 AND start_us < $2 AND signature != 0"
            " AND facet IN (SELECT facet FROM mine) GROUP BY facet, signature, since",
            [int(window.start * 1e6), int(window.end * 1e6), at],
        ).fetchall()
    finally:
        view.cursor.unregister("mine")
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for facet, signature, fields, since, weight, first, last in rows:
        said = _facet(view, facet)
        told = found.setdefault((said["instance"], signature), {"fields": 0, "first": first, "last": last})
        told["fields"] = max(told["fields"], fields)
        told["first"], told["last"] = min(told["first"], first), max(told["last"], last)
        place = ("" if since else "before_") + ("hits" if said["hit"] else "misses")
        told[place] = told.get(place, 0.0) + weight
    return [
        SignatureRow(
            span.service, instance, span.modality, f"{signature:016x}", fields_of(view, told["fields"]),
            told.get("before_hits", 0.0), told.get("before_misses", 0.0), told.get("hits", 0.0),
            told.get("misses", 0.0), told["first"] / 1e6, told["last"] / 1e6,
        )
        for (instance, signature), told in sorted(found.items(), key=lambda one: one[1]["first"])
    ]  # fmt: skip


def _facet(view: View, facet: int) -> dict[str, Any]:
    row = view.known.facets.rows[facet]
    said: dict[str, Any] = {"lookup": bool(row[0]), "hit": bool(row[1])}
    for axis, word in zip(Facets.COLUMNS[2:], row[2:], strict=True):
        said[axis] = view.known.words[axis].texts[word]
    return said
