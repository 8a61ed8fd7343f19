"""From a dip down to one trace: which lookups there were, newest first, and all spans of a trace."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mmcache.dashboard.asking import Question, WrongQuestionError
from mmcache.dashboard.counting import View, parts
from mmcache.dashboard.reading import spans
from mmcache.dashboard.rows import SpanRow
from mmcache.dashboard.schema import CLOSED_BY
from mmcache.dashboard.taken import LOOKUP
from mmcache.dashboard.values import digits
from mmcache.model.errors import DashboardError

TRACE_SPANS = 2000
_CURSOR = re.compile(r"([0-9]{1,16})-([0-9a-f]{16})")


def requests(view: View, asked: Question, limit: int, before: str | None) -> dict[str, Any]:
    """Lookups, newest first."""
    found = newest(view, asked, limit + 1, before)
    more = len(found) > limit
    found = found[:limit]
    return {
        "requests": [_brief(row) for row in found],
        "next": f"{round(found[-1].start * 1e6)}-{found[-1].span}" if more else None,
    }


def newest(view: View, asked: Question, limit: int, before: str | None = None) -> list[SpanRow]:
    """At most `limit` of the lookups asked for, newest first; before: a cursor of `requests`."""
    first, last, span = int(asked.window.start * 1e6), int(asked.window.end * 1e6), 0
    if before is not None:
        match = _CURSOR.fullmatch(before)
        if match is None:
            raise WrongQuestionError("before is what an answer said as next")
        if int(match[1]) < last:
            last, span = int(match[1]), int(match[2], 16)
    mask = asked.chosen(view.known)
    chosen = np.flatnonzero(mask).astype(np.uint32)
    if not len(chosen) or last < first:
        return []
    since = first if asked.keys else max(first, _since(view, asked, mask, last, limit))
    where = "start_us >= $1 AND start_us <= $2 AND (start_us < $2 OR span < $3) AND name = $4"
    where += " AND facet IN (SELECT facet FROM chosen)" if asked.filters else ""
    where += f" AND key IN ({', '.join(f'${at}' for at in range(5, 5 + len(asked.keys)))})" if asked.keys else ""
    values = [since, last, span, view.known.words["name"].find(LOOKUP) or 0, *asked.keys]
    view.cursor.register("chosen", {"facet": chosen})
    try:
        return spans(view, where, "start_us DESC, span DESC", limit, values)
    finally:
        view.cursor.unregister("chosen")


def _since(view: View, asked: Question, mask: Any, last_us: int, limit: int) -> int:
    """From when on there are enough of them, by what is counted already: so that not all spans are looked at."""
    start, end = int(asked.window.start // CLOSED_BY) * CLOSED_BY, int(last_us // 1_000_000) + 1
    bounds = [part for part in parts(view, asked, CLOSED_BY, start, end) if part[0] != "spans"]
    if not bounds:
        return 0
    found = view.cursor.execute(
        f"SELECT start, facet, n FROM rollup_{CLOSED_BY} WHERE start >= ? AND start < ?",
        [bounds[0][1], bounds[-1][2]],
    ).fetchnumpy()
    facet = found["facet"].astype(np.int64)
    known = facet < len(mask)
    rows = known & mask[np.where(known, facet, 0)]
    starts, n = found["start"][rows], found["n"][rows]
    # The slice of the cursor itself may be counted up to after it, so it counts for nothing.
    earlier = starts + CLOSED_BY <= last_us // 1_000_000
    starts, n = starts[earlier], n[earlier]
    if n.sum() < limit:
        return 0
    order = np.argsort(-starts, kind="stable")
    at = int(np.searchsorted(np.cumsum(n[order]), limit))
    return int(starts[order][at]) * 1_000_000


def _brief(row: SpanRow) -> dict[str, Any]:
    names = ("trace", "span", "start", "duration_ms", "name", "route", "tenant", "region", "client", "modality",
             "outcome", "reason", "detail", "key", "service", "instance")  # fmt: skip
    return {name: getattr(row, name) for name in names}


def spans_of_trace(view: View, trace: str) -> list[SpanRow]:
    """All of a trace, oldest first, at most 2000. Raises `DashboardError` (404)."""
    number = digits(trace, 32)
    if not number:
        raise WrongQuestionError("a trace is 32 hex digits")
    ends = [number >> 64, number & 0xFFFFFFFFFFFFFFFF]
    found = spans(view, "trace_hi = ? AND trace_lo = ?", "start_us, span", TRACE_SPANS, ends)
    if not found:
        raise DashboardError("no span of this trace is kept", status=404, code="unknown")
    return found


def trace(view: View, name: str) -> dict[str, Any]:
    """One trace, as a waterfall shows it."""
    return {
        "trace": name,
        "spans": [
            {
                "span": row.span,
                "parent": row.parent or None,
                "name": row.name,
                "kind": row.kind,
                "start": row.start,
                "duration_ms": row.duration_ms,
                "service": row.service,
                "instance": row.instance,
                "status": row.status,
                "attributes": dict(row.attributes),
            }
            for row in spans_of_trace(view, name)
        ],
    }
