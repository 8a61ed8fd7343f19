"""Slices of time whose spans have come: their counts are kept beside the spans, so that no question reads all of them.

A slice is closed when spans of later ones have come for a while. What arrives after that opens it again, and it is
counted anew from its spans. So a count is always exactly what the spans say, until the spans are gone; then it stays.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import duckdb

from mmcache.dashboard.schema import CLOSED_BY, LEVELS

GRACE = 20
"""Seconds that a slice's spans are waited for, after later ones came."""
KEYS = 500
"""Hottest keys of a slice that are counted."""
HOUR = LEVELS[-1]
_SUMS = "sum(n), sum(weight), sum(square), sum(saved), sum(bytes)"


class Slices:
    """Which slices are not closed: as the writer knows it, or as a reader's state has it."""

    def __init__(self, unclosed: set[tuple[int, int]] | None = None) -> None:
        self._unclosed = unclosed or set()
        self.newest = max((start + width for width, start in self._unclosed if width == CLOSED_BY), default=0)

    @classmethod
    def read(cls, connection: Any) -> Slices:
        """As the store has it."""
        return cls(
            {(width, start) for width, start in connection.execute("SELECT width, start FROM unclosed").fetchall()}
        )

    def opens(self, seconds: set[int]) -> set[tuple[int, int]]:
        """Slices that spans of these seconds open, and that were not open."""
        wide = {(width, second // width * width) for second in seconds for width in (CLOSED_BY, HOUR)}
        return wide - self._unclosed

    def opened(self, slices: set[tuple[int, int]], newest: int) -> None:
        """They are, from now on."""
        self._unclosed |= slices
        self.newest = max(self.newest, newest)

    def closed(self, width: int, start: int) -> None:
        """It is."""
        self._unclosed.discard((width, start))

    def due(self) -> tuple[int, int] | None:
        """The oldest that can be closed: an hour after all that is in it."""
        over = sorted((start, width) for width, start in self._unclosed if start + width + GRACE <= self.newest)
        for start, width in over:
            inside = range(start, start + HOUR, CLOSED_BY)
            if width == CLOSED_BY or not any((CLOSED_BY, one) in self._unclosed for one in inside):
                return width, start
        return None

    def before(self, end: int) -> list[int]:
        """Those that are not closed and begin before it, hours left out."""
        return sorted(start for width, start in self._unclosed if width == CLOSED_BY and start < end)

    def edge(self, width: int, start: float, end: float) -> int:
        """Up to when, from `start` on, all slices of a window are closed."""
        inside = (at for wide, at in self._unclosed if wide == width and at + wide > start and at < end)
        first = min(inside, default=None)
        return int(first) if first is not None else int(-(-end // width) * width)


def rollback(connection: Any) -> None:
    """End the transaction, if a failed commit has not."""
    with suppress(duckdb.Error):
        connection.execute("ROLLBACK")


def close(connection: Any, width: int, start: int) -> None:
    """Count a slice anew, in one transaction."""
    end = start + width
    connection.execute("BEGIN")
    try:
        for level in LEVELS[:-1] if width == CLOSED_BY else (HOUR,):
            connection.execute(f"DELETE FROM rollup_{level} WHERE start >= ? AND start < ?", [start, end])
        connection.execute(f"DELETE FROM keys_{width} WHERE start = ?", [start])
        if width == CLOSED_BY:
            _from_spans(connection, start, end)
        else:
            _from_slices(connection, start, end)
        connection.execute("DELETE FROM unclosed WHERE width = ? AND start = ?", [width, start])
        connection.execute("COMMIT")
    except BaseException:
        rollback(connection)
        raise


def _from_spans(connection: Any, start: int, end: int) -> None:
    between = [start * 1_000_000, end * 1_000_000]
    fine = LEVELS[0]
    connection.execute(
        f"INSERT INTO rollup_{fine} SELECT start_us // {fine * 1_000_000} * {fine} AS slot, facet, count(*),"
        " sum(weight), sum(weight * weight), sum(weight * saved_ms / 1000), sum(weight * bytes)"
        " FROM spans WHERE start_us >= ? AND start_us < ?"
        " AND facet IN (SELECT id FROM facets WHERE lookup) GROUP BY slot, facet ORDER BY slot",
        between,
    )
    for finer, level in pairwise(LEVELS[:-1]):
        connection.execute(
            f"INSERT INTO rollup_{level} SELECT start // {level} * {level} AS slot, facet, {_SUMS}"
            f" FROM rollup_{finer} WHERE start >= $1 AND start < $2 GROUP BY slot, facet ORDER BY slot",
            [start, end],
        )
    connection.execute(
        f"INSERT INTO keys_{CLOSED_BY}"
        " WITH counted AS (SELECT key, facet, count(*) AS n, sum(weight) AS weight FROM spans"
        " WHERE start_us >= $1 AND start_us < $2 AND key != 0 AND facet IN (SELECT id FROM facets WHERE lookup)"
        " GROUP BY key, facet),"
        " hot AS (SELECT key FROM counted GROUP BY key ORDER BY sum(weight) DESC, key LIMIT $3)"
        " SELECT $4, key, facet, n, weight FROM counted WHERE key IN (SELECT key FROM hot)",
        [*between, KEYS, start],
    )


def _from_slices(connection: Any, start: int, end: int) -> None:
    connection.execute(
        f"INSERT INTO rollup_{HOUR} SELECT $1, facet, {_SUMS}"
        f" FROM rollup_{CLOSED_BY} WHERE start >= $1 AND start < $2 GROUP BY facet",
        [start, end],
    )
    connection.execute(
        f"INSERT INTO keys_{HOUR}"
        " WITH counted AS (SELECT key, facet, sum(n) AS n, sum(weight) AS weight"
        f" FROM keys_{CLOSED_BY} WHERE start >= $1 AND start < $2 GROUP BY key, facet),"
        " hot AS (SELECT key FROM counted GROUP BY key ORDER BY sum(weight) DESC, key LIMIT $3)"
        " SELECT $1, key, facet, n, weight FROM counted WHERE key IN (SELECT key FROM hot)",
        [start, end, KEYS],
    )
