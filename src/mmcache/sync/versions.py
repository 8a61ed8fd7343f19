"""Where in a database's log a change stands, from what Debezium says of its source. Pure.

A *version* orders the changes of one row: two changes of a row are made one after the other, because the first holds
the row's lock until it commits. It orders nothing else, nor insertions (see `moves`). Changes of one transaction may
share a version: they become visible together, so that whoever loads a row after the first of them was told loads what
the last one left.

An *order* never falls along one partition, except where a connector repeats what it has sent. PostgreSQL's LSN is no
order: a long transaction writes its changes early and is sent when it commits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

MOST = 10**18
"""Versions are below it; a position that is not has none."""
_FILE_POSITIONS = 10**10
"""More than a binlog file has bytes (32 bits)."""
REWIND_SECONDS = 1.0
"""Commits that are nearly simultaneous may bear times in another order than they stand in the log."""


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """How far the log of a connector's database is known."""

    order: int | None = None
    order_ts: float = 0.0
    """The highest order, and when that change was made, Unix seconds."""
    top: int = 0
    """The highest version."""
    ceiling: int = 0
    """Versions up to here may be of a log that was before, and do not compare."""
    tables: tuple[str, ...] = ()
    """Mapped tables that it told of: where another database did too, their versions do not compare."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What a change counts as."""

    database: Database
    version: int | None
    """None = new, whatever was there."""
    rewound: bool
    """Whether the log was found to have begun anew just now: the database was restored, or another server took over."""


def place(database: Database, version: int | None, order: int | None, seconds: float, *, snapshot: bool) -> Placed:
    """Place a change in its database's log; seconds: when it was made.

    What is earlier in the log *and* in time is repeated by a connector that died, or comes by a partition that lags.
    What is earlier in the log, yet later in time, is of another log.
    """
    rewound = order is not None and database.order is not None and order < database.order
    rewound = rewound and seconds > database.order_ts + REWIND_SECONDS
    ceiling = max(database.ceiling, database.top) if rewound else database.ceiling
    known, known_ts = database.order, database.order_ts
    if order is not None and (rewound or (not snapshot and (known is None or order > known))):
        known, known_ts = order, seconds
    top = max(database.top, version or 0)
    placed = replace(database, order=known, order_ts=known_ts, top=top, ceiling=ceiling)
    return Placed(placed, version if version is not None and version > ceiling else None, rewound)


def version_of(source: Mapping[str, Any]) -> int | None:
    """The version of a change; None where the connector has none that can be used (then it counts as new).

    PostgreSQL: the LSN of the change, or of the snapshot. MySQL, MariaDB: the number of the binlog file and the
    position in it.
    """
    connector = source.get("connector")
    if connector == "postgresql":
        return _bounded(source.get("lsn"))
    if connector in ("mysql", "mariadb"):
        return _binlog(source)
    return None


def order_of(source: Mapping[str, Any]) -> int | None:
    """How far the log was read when the change was sent. None = unknown.

    PostgreSQL: the last commit before it; the change itself, in the first transaction that a connector ever reads.
    """
    if source.get("connector") != "postgresql":
        return version_of(source)
    sequence = source.get("sequence")
    if not isinstance(sequence, str):
        return None
    try:
        last_commit, change = msgspec.json.decode(sequence, type=tuple[str | None, str | None])
    except msgspec.MsgspecError:
        return None
    last_commit = last_commit or change
    return _bounded(int(last_commit)) if last_commit is not None and re.fullmatch(r"[0-9]{1,20}", last_commit) else None


def _binlog(source: Mapping[str, Any]) -> int | None:
    file, position = source.get("file"), _bounded(source.get("pos"))
    number = re.search(r"[0-9]{1,18}$", file) if isinstance(file, str) else None
    if number is None or position is None or position >= _FILE_POSITIONS:
        return None
    return _bounded(int(number[0]) * _FILE_POSITIONS + position)


def _bounded(position: object) -> int | None:
    if isinstance(position, int) and not isinstance(position, bool) and 0 < position < MOST:
        return position
    return None
