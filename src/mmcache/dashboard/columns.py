"""Spans as columns of numbers, in the order of the table `spans`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmcache.dashboard.dictionary import Dictionary
from mmcache.dashboard.rows import AXES
from mmcache.dashboard.taken import Taken


def columns_of(spans: Sequence[Taken], known: Dictionary) -> dict[str, Any]:
    """What is inserted. New texts join the dictionary."""
    words, sheets = known.words, known.sheets.add
    name, tier, client, detail = (words[column].add for column in ("name", "tier", "client", "detail"))
    axes = [words[axis].add for axis in AXES]
    facet_of: dict[tuple[Any, ...], int] = {}
    facets, origins, fields, rests = [], [], [], []
    for span in spans:
        said = (span.lookup, span.hit, span.axes)
        facet = facet_of.get(said)
        if facet is None:
            ids = [add(text) for add, text in zip(axes, span.axes, strict=True)]
            facet = facet_of[said] = known.facets.add((int(span.lookup), int(span.hit), *ids))
        facets.append(facet)
        rest = span.rest
        origin = sheets(span.origin)
        sheet = sheets(span.fields) if span.fields else 0
        if (span.fields and not sheet) or not origin:
            rest = _joined(rest, *([] if origin else [span.origin]), *([] if sheet else [span.fields]))
        origins.append(origin)
        fields.append(sheet)
        rests.append(rest)

    def column(cells: list[Any], kind: Any) -> Any:
        return np.array(cells, dtype=kind)

    return {
        "trace_hi": column([span.trace[0] for span in spans], np.uint64),
        "trace_lo": column([span.trace[1] for span in spans], np.uint64),
        "span": column([span.span for span in spans], np.uint64),
        "parent": column([span.parent for span in spans], np.uint64),
        "start_us": column([span.start_us for span in spans], np.int64),
        "duration_us": column([span.duration_us for span in spans], np.uint32),
        "kind": column([span.kind for span in spans], np.uint8),
        "status": column([span.status for span in spans], np.uint8),
        "facet": column(facets, np.uint32),
        "name": column([name(span.name) for span in spans], np.uint32),
        "tier": column([tier(span.tier) for span in spans], np.uint32),
        "client": column([client(span.client) for span in spans], np.uint32),
        "detail": column([detail(span.detail) for span in spans], np.uint32),
        "key": column([span.key for span in spans], np.uint64),
        "content_hi": column([span.content[0] for span in spans], np.uint64),
        "content_lo": column([span.content[1] for span in spans], np.uint64),
        "signature": column([span.signature for span in spans], np.uint64),
        "saved_ms": column([span.saved_ms for span in spans], np.float32),
        "bytes": column([span.bytes for span in spans], np.uint64),
        "weight": column([span.weight for span in spans], np.float64),
        "origin": column(origins, np.uint32),
        "fields": column(fields, np.uint32),
        "rest": column(rests, object),
    }


def _joined(*texts: str | None) -> str | None:
    """Several JSON objects as one."""
    parts = [text[1:-1] for text in texts if text and len(text) > 2]
    return "{" + ",".join(parts) + "}" if parts else None
