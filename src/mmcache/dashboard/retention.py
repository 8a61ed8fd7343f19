"""What is oldest goes when the store is full: spans by slices of time; their counts stay, until they are too many.

DuckDB frees the blocks of row groups that are deleted whole at its next checkpoint, and writes into them again; blocks
at the file's end are cut off. Rows come about in the order of time, so what is oldest lies together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from mmcache.dashboard.closing import Slices, close
from mmcache.dashboard.graph_kept import trim
from mmcache.dashboard.schema import CLOSED_BY, KEY_LEVELS, LEVELS

FULL = 1.0
LEFT = 0.85
"""Of the limit, after something went."""
ROUNDS = 8
VAIN = 2
"""Rounds running that free nothing: one may have emptied no row group; after two, somebody reads after all, and to
delete more would free nothing either."""
ROLLUP_BYTES = 16
"""Of a row of counts, about."""


@dataclass(frozen=True, slots=True)
class Kept:
    """After it."""

    bytes: int
    floor_us: int | None
    """Before this, spans have gone; None = nothing went."""


def used(connection: Any) -> int:
    """Bytes of the blocks in use and of the log; of a store in memory, what it takes there."""
    size = connection.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
    (path,) = connection.execute("SELECT path FROM duckdb_databases() WHERE NOT internal").fetchone()
    if path is None:
        (held,) = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
        return int(held or 0)
    try:
        log = Path(f"{path}.wal").stat().st_size
    except OSError:  # a checkpoint ends it at any time
        log = 0
    return int(size[0] * size[1]) + log


def keep(connection: Any, limit: int, slices: Slices) -> Kept:
    """Delete until at most `limit` bytes are in use. Raises `duckdb.Error`.

    Nothing is freed that a reader's state still has: whoever calls it sees to it that there is none.
    """
    size, floor_us = used(connection), None
    if size <= limit * FULL:
        return Kept(size, None)
    connection.execute("CHECKPOINT")  # the log is counted twice until then
    size, vain = used(connection), 0
    for _ in range(ROUNDS):
        if size <= limit * FULL or vain == VAIN:
            break
        _rollups(connection, limit)
        trim(connection, limit)
        gone = _oldest(connection, 1 - limit * LEFT / size, slices)
        if gone is None:
            break
        floor_us = gone
        connection.execute("CHECKPOINT")
        before, size = size, used(connection)
        vain = vain + 1 if size >= before else 0
    return Kept(size, floor_us)


def _oldest(connection: Any, share: float, slices: Slices) -> int | None:
    """Delete about this share of the spans. Returns the start of what is left."""
    cut, newest = connection.execute(
        "SELECT quantile_disc(start_us, ?), max(start_us) FROM spans", [min(max(share, 0.01), 1.0)]
    ).fetchone()
    if cut is None:
        return None
    width = CLOSED_BY * 1_000_000
    floor: int = (cut // width + 1) * width
    if floor > newest:  # all of them are of one slice
        floor = cut + 1
    else:
        for start in slices.before(floor // 1_000_000):
            close(connection, CLOSED_BY, start)
            slices.closed(CLOSED_BY, start)
    connection.execute("DELETE FROM spans WHERE start_us < ?", [floor])
    return floor


def _rollups(connection: Any, limit: int) -> None:
    """Counts take a quarter of the room at most."""
    names = [f"rollup_{level}" for level in LEVELS] + [f"keys_{level}" for level in KEY_LEVELS] + ["points"]
    most = limit // 4 // len(names) // ROLLUP_BYTES
    for name in names:
        (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        if rows > most:
            (cut,) = connection.execute(
                f"SELECT quantile_disc(start, ?) FROM {name}", [1 - 0.8 * most / rows]
            ).fetchone()
            connection.execute(f"DELETE FROM {name} WHERE start <= ?", [cut])


def floors(connection: Any) -> dict[str, int]:
    """Since when there are spans, and counts of each level; Unix seconds, 0 = there are none."""
    found = {"spans": "SELECT min(start_us) // 1000000 FROM spans"}
    found |= {str(level): f"SELECT min(start) FROM rollup_{level}" for level in LEVELS}
    try:
        return {name: int(connection.execute(query).fetchone()[0] or 0) for name, query in found.items()}
    except duckdb.Error:
        return dict.fromkeys(found, 0)


def floor_us(connection: Any) -> int | None:
    """Before this, spans have gone and counts may be left, which late spans must not begin anew; None = none has."""
    (first,) = connection.execute("SELECT min(start_us) FROM spans").fetchone()
    oldest, newest = connection.execute(f"SELECT min(start), max(start) FROM rollup_{CLOSED_BY}").fetchone()
    if oldest is None:
        return None
    kept: int = newest + CLOSED_BY if first is None else first // 1_000_000 // CLOSED_BY * CLOSED_BY
    return kept * 1_000_000 if oldest < kept else None
