"""Views of hot keys that are kept: of each process the latest in memory, and a bounded past on the disk.

On the disk are whole views, now and then, and every move of a community: that it appeared, grew old, took in another,
fades, has gone. There are two tables of it, of which one is written: once that holds enough the other is made anew and
written, so that what goes is always a whole table, whose blocks DuckDB uses again.

Times here are when a view came, by this machine's clock.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mmcache.dashboard.closing import rollback
from mmcache.dashboard.schema import TABLES, VIEWS
from mmcache.hotkeys.view import Community, HotView, decode, encode

SILENT_SECONDS = 600.0
"""A process that says nothing for so long has gone."""
MOST_PROCESSES = 64
"""That are known at a time; a further one takes the place of the one that is silent for longest."""
EVERY_SECONDS = 15.0
"""Between two whole views of a process on the disk."""
TURN_SECONDS = 3600.0
"""What is kept goes back at least so long, if it has room."""
MOST_BYTES = 32 << 20
SHARE = 32
"""Of the store's limit, each of the two tables takes at most one part in so many."""

Process = tuple[str, str]
"""Service and instance."""


class Move(msgspec.Struct, frozen=True):
    """What a community was from some moment on."""

    community: Community
    whose: list[tuple[str, str]] = []
    """Tenants and modalities of its keys."""


@dataclass(frozen=True, slots=True)
class Held:
    """A view, and when it came."""

    view: HotView
    came: float
    written: float = 0.0
    """When one of its process was written whole."""

    @property
    def process(self) -> Process:
        """Whose it is."""
        return self.view.service, self.view.instance


class Views:
    """The latest of each process. The store's writer alone changes it; whoever reads sees one state."""

    def __init__(self, held: Sequence[Held] = ()) -> None:
        self._held = {one.process: one for one in held}
        self.came = 0
        """How many, since the start: who listens sees that there are new ones."""

    @classmethod
    def read(cls, connection: Any, now: float) -> Views:
        """As the store has them."""
        return cls(kept(connection, now + 1.0))

    def latest(self, now: float) -> list[Held]:
        """Of processes that are not silent."""
        return [one for one in self._held.values() if now - one.came < SILENT_SECONDS]

    def forget(self) -> None:
        """All of them; the store is cleared."""
        self._held = {}
        self.came += 1

    def take(self, connection: Any, views: Sequence[HotView], limit: int, now: float | None = None) -> None:
        """What came; written first, in one transaction. Raises `duckdb.Error`. limit: bytes of the store."""
        now = time.time() if now is None else now
        held = {process: one for process, one in self._held.items() if now - one.came < SILENT_SECONDS}
        rows: list[tuple[float, str, str, int, bytes]] = []
        for view in views:
            process = view.service, view.instance
            before = held.pop(process, None)
            written = 0.0 if before is None else before.written
            if not 0 <= now - written < EVERY_SECONDS:
                rows.append((now, *process, 0, zlib.compress(encode(view), 3)))
                written = now
            moves = _moves(before.view if before is not None else None, view)
            rows += [(now, *process, one.community.id, msgspec.json.encode(one)) for one in moves]
            held[process] = Held(view, now, written)
        if rows:
            _write(connection, rows, now, limit)
        silent = sorted(held, key=lambda process: held[process].came)
        for process in silent[: max(0, len(held) - MOST_PROCESSES)]:
            del held[process]
        self._held = held
        self.came += len(views)


def _moves(before: HotView | None, after: HotView) -> list[Move]:
    """Communities that are not what they were."""
    was = {one.id: one for one in before.communities} if before is not None else {}
    moved = [
        one for one in after.communities
        if one.id not in was or (was[one.id].state, was[one.id].merged) != (one.state, one.merged)
    ]  # fmt: skip
    there = {one.id for one in after.communities}
    gone = [one for one in was.values() if one.id not in there and one.state != "faded"]
    moves = [Move(one, whose(after, one.id)) for one in moved]
    if before is not None:
        moves += [Move(msgspec.structs.replace(one, state="faded"), whose(before, one.id)) for one in gone]
    return moves


def whose(view: HotView, community: int) -> list[tuple[str, str]]:
    """Tenants and modalities of its keys, the first eight."""
    found = dict.fromkeys((one.tenant, one.modality) for one in view.keys if one.community == community)
    return list(found)[:8]


def kept(cursor: Any, end: float) -> list[Held]:
    """Of each process the last whole view before `end`, if it was not silent then."""
    found = []
    rows = cursor.execute(
        f"SELECT service, instance, max(start), arg_max(part, start), arg_max(row, start) FROM ({_rows()})"
        " WHERE community = 0 AND start < $1 AND start > $2 GROUP BY service, instance"
        " ORDER BY max(start) DESC LIMIT $3",
        [end, end - SILENT_SECONDS, MOST_PROCESSES],
    ).fetchall()
    for _, _, start, part, row in rows:
        (said,) = cursor.execute(f"SELECT said FROM {VIEWS[part]} WHERE rowid = ?", [row]).fetchone()
        try:
            found.append(Held(decode(zlib.decompress(said)), start, start))
        except (zlib.error, msgspec.MsgspecError, ValueError):  # of another format: what is newer is kept
            continue
    return found


def moves(cursor: Any, start: float, end: float) -> list[tuple[Process, float, Move]]:
    """What each community that moved in that time was last, oldest first; a thousand at most."""
    rows = cursor.execute(
        f"SELECT service, instance, max(start), arg_max(part, start), arg_max(row, start) FROM ({_rows()})"
        " WHERE community != 0 AND start >= $1 AND start < $2 GROUP BY service, instance, community"
        " ORDER BY max(start) DESC LIMIT 1000",
        [start, end],
    ).fetchall()
    wanted: dict[int, list[int]] = {}
    for *_, part, row in rows:
        wanted.setdefault(part, []).append(row)
    said = {
        (part, row): text
        for part, numbers in wanted.items()
        for row, text in cursor.execute(
            f"SELECT rowid, said FROM {VIEWS[part]} WHERE rowid IN (SELECT unnest($1::BIGINT[]))", [numbers]
        ).fetchall()
    }
    found = []
    for service, instance, at, part, row in reversed(rows):
        try:
            found.append(((service, instance), at, msgspec.json.decode(said[part, row], type=Move)))
        except msgspec.MsgspecError:
            continue
    return found


def _rows() -> str:
    return " UNION ALL ".join(
        f"SELECT start, service, instance, community, {part} AS part, rowid AS row FROM {name}"
        for part, name in enumerate(VIEWS)
    )


def _write(connection: Any, rows: Sequence[tuple[float, str, str, int, bytes]], now: float, limit: int) -> None:
    sizes = itertools.accumulate(len(row[-1]) for row in rows)
    rows = [row for row, size in zip(rows, sizes, strict=True) if size <= room(limit)]
    if not rows:
        return
    connection.execute("BEGIN")
    try:
        name = _turned(connection, sum(len(row[-1]) for row in rows), now, limit)
        columns = [list(column) for column in zip(*rows, strict=True)]
        connection.execute(
            f"INSERT INTO {name} SELECT unnest($1::DOUBLE[]), unnest($2::VARCHAR[]), unnest($3::VARCHAR[]),"
            " unnest($4::BIGINT[]), unnest($5::BLOB[])",
            columns,
        )
        connection.execute("COMMIT")
    except BaseException:
        rollback(connection)
        raise


def _turned(connection: Any, size: int, now: float, limit: int) -> str:
    """The table that is written; when it holds enough, the other one, emptied."""
    states = [
        connection.execute(f"SELECT min(start), max(start), sum(octet_length(said)) FROM {name}").fetchone()
        for name in VIEWS
    ]
    newest = 1 if (states[1][1] or 0) > (states[0][1] or 0) else 0
    first, _, held = states[newest]
    if held is None or (held + size <= room(limit) and abs(now - first) < TURN_SECONDS):
        return VIEWS[newest]
    _empty(connection, VIEWS[1 - newest])
    return VIEWS[1 - newest]


def _empty(connection: Any, name: str) -> None:
    """Anew: rows that are only deleted share their blocks with what is written next, which frees none."""
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({TABLES[name]})")


def room(limit: int) -> int:
    """Bytes of each of the tables, in a store of so many."""
    return min(MOST_BYTES, limit // SHARE)


def trim(connection: Any, limit: int) -> None:
    """Empty what is too large for a store that became smaller."""
    for name in VIEWS:
        (held,) = connection.execute(f"SELECT sum(octet_length(said)) FROM {name}").fetchone()
        if (held or 0) > room(limit):
            _empty(connection, name)
