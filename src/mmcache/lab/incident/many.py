"""A generated night, several times over: more spans than are quickly made one by one.

Every copy has traces of its own, a little later; half of the copies have keys and contents of their own, too.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from mmcache.dashboard.schema import CLOSED_BY, KEY_LEVELS, LEVELS
from mmcache.dashboard.store import Store
from mmcache.lab.incident.__main__ import fill
from mmcache.lab.incident.spans import Night, mixed
from mmcache.settings import DashboardSettings

LATER_US = 31_337
"""Of each copy, behind the one before."""
PIECE = 3600


def build(path: Path, night: Night, copies: int, limit: int = 8 << 30) -> int:
    """A store of `copies` nights at once, all of whose slices but the last are closed. Returns how many spans."""
    settings = DashboardSettings(str(path), limit_bytes=limit, queue_spans=10**9)
    store = Store(settings)
    try:
        fill(store, night)
    finally:
        store.close()
    if copies > 1:
        _multiply(path, night, copies)
    store = Store(settings)
    try:
        while store.between(store.slices.due).result() is not None:
            pass
        cursor = store.cursor()
        (count,) = cursor.execute("SELECT count(*) FROM spans").fetchone()
        cursor.close()
    finally:
        store.close()
    return int(count)


def _multiply(path: Path, night: Night, copies: int) -> None:
    """In the order of time, as they would have come."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TEMP TABLE once AS SELECT * FROM spans")
        connection.execute("DELETE FROM spans")
        connection.execute("CREATE TEMP TABLE copy (number BIGINT, own UBIGINT, keys UBIGINT)")
        rows = [(at, mixed(7, at) if at else 0, mixed(9, at) if at % 2 else 0) for at in range(copies)]
        connection.executemany("INSERT INTO copy VALUES (?, ?, ?)", rows)
        for hour in range(int(-(-night.hours // 1))):
            start = int((night.midnight + hour * PIECE) * 1e6)
            connection.execute(
                "INSERT INTO spans SELECT once.* REPLACE (xor(trace_lo, own) AS trace_lo, xor(span, own) AS span,"
                " CASE WHEN parent = 0 THEN 0 ELSE xor(parent, own) END AS parent,"
                f" start_us + number * {LATER_US} AS start_us,"
                " CASE WHEN key = 0 THEN 0 ELSE xor(key, keys) END AS key,"
                " CASE WHEN content_hi = 0 THEN 0 ELSE xor(content_hi, keys) END AS content_hi)"
                " FROM once, copy WHERE start_us >= ? AND start_us < ? ORDER BY start_us + number * 31337",
                [start, start + PIECE * 1_000_000],
            )
        for name in (*(f"rollup_{level}" for level in LEVELS), *(f"keys_{level}" for level in KEY_LEVELS), "unclosed"):
            connection.execute(f"DELETE FROM {name}")
        for width in (CLOSED_BY, LEVELS[-1]):
            connection.execute(
                f"INSERT INTO unclosed SELECT DISTINCT {width}, start_us // {width * 1_000_000} * {width} FROM spans"
            )
        connection.execute("CHECKPOINT")
