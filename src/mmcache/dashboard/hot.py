"""The hottest keys, and when each was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import HOUR, View, parts, step_of
from mmcache.dashboard.dictionary import Facets
from mmcache.dashboard.schema import CLOSED_BY

_MILLION = 1_000_000


def keys(view: View, asked: Question, top: int, points: int) -> dict[str, Any]:
    """Steps of 5 minutes or more count the 500 hottest keys of each slice, which are kept; shorter ones count spans."""
    step = step_of(asked.window.seconds, points)
    start, end = int(asked.window.start // step) * step, int(-(-asked.window.end // step)) * step
    cursor, slots = view.cursor, (end - start) // step
    cursor.register("chosen", {"facet": np.flatnonzero(asked.chosen(view.known)).astype(np.uint32)})
    try:
        wanted = _hottest(view, asked, start, end, top)
        cursor.register("wanted", {"key": np.array(wanted, np.uint64)})
        source = _kept(view, asked, step, start, end) if step % CLOSED_BY == 0 else _spans(start, end)
        found = cursor.execute(
            f"SELECT key, (start - {start}) // {step} AS slot, facet, sum(weight) AS weight FROM ({source})"
            " WHERE key IN (SELECT key FROM wanted) AND facet IN (SELECT facet FROM chosen)"
            " GROUP BY key, slot, facet"
        ).fetchnumpy()
    finally:
        for name in ("chosen", "wanted"):
            cursor.unregister(name)
    table, facet = view.known.facets.table(), found["facet"].astype(np.int64)
    weight, slot, key = found["weight"].astype(np.float64), found["slot"].astype(np.int64), found["key"]
    hit = table[facet, Facets.COLUMNS.index("hit")] == 1
    told = []
    for one in wanted:
        rows = key == np.uint64(one)
        if not rows.any():
            continue
        largest = table[facet[rows][np.argmax(weight[rows])]]
        told.append(
            {
                "key": f"{one:016x}",
                "modality": _text(view, "modality", largest),
                "tenant": _text(view, "tenant", largest),
                "hits": round(float(weight[rows & hit].sum()), 6),
                "misses": round(float(weight[rows & ~hit].sum()), 6),
                "counts": np.round(np.bincount(slot[rows], weight[rows], slots), 6).tolist(),
            }
        )
    told.sort(key=lambda key: -(key["hits"] + key["misses"]))
    return {"step": step, "t": [start + at * step for at in range(slots)], "keys": told}


def _text(view: View, axis: str, row: Any) -> str:
    return view.known.words[axis].texts[int(row[Facets.COLUMNS.index(axis)])]


def _hottest(view: View, asked: Question, start: int, end: int, top: int) -> list[int]:
    if asked.keys:
        return list(asked.keys)[:top]
    rows = view.cursor.execute(
        f"SELECT key FROM ({_kept(view, asked, HOUR if end - start > 4 * HOUR else CLOSED_BY, start, end)})"
        " WHERE facet IN (SELECT facet FROM chosen) GROUP BY key ORDER BY sum(weight) DESC, key LIMIT ?",
        [top],
    ).fetchall()
    return [key for (key,) in rows]


def _kept(view: View, asked: Question, step: int, start: int, end: int) -> str:
    """Numbers only: there is no text of anybody in it."""
    width = HOUR if step % HOUR == 0 else CLOSED_BY
    first, last = start // width * width, -(-end // width) * width
    sources = [
        _spans(start, end)
        if name == "spans" and since <= start
        else _spans(since, min(until, end))
        if name == "spans"
        else f"SELECT key, start, facet, weight FROM keys_{int(name)} WHERE start >= {since} AND start < {until}"
        for name, since, until in parts(view, asked, width, first, last)
    ]
    return " UNION ALL ".join(sources)


def _spans(start: int, end: int) -> str:
    return (
        f"SELECT key, start_us // {_MILLION} AS start, facet, weight FROM spans"
        f" WHERE start_us >= {start * _MILLION} AND start_us < {end * _MILLION} AND key != 0"
    )
