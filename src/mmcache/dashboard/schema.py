"""The store's tables, and how its file is opened: a newer one is refused, a damaged one set aside, never deleted.

A span is a row of numbers. Its texts are numbers, too: `words` (by column), `facets` (all that a lookup is counted
by, together) and `sheets` (JSON that many spans share). The view `seen` shows spans with their texts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import duckdb

from mmcache.model.errors import DashboardError, FormatVersionError

VERSION = 1
MAGIC = b"DUCK"
LEVELS = (10, 60, 300, 3600)
"""Seconds of a rollup's slices."""
CLOSED_BY = 300
"""Slices are closed by so many seconds."""
KEY_LEVELS = (300, 3600)
"""Of which the hottest keys are kept."""
VIEWS = ("graph_0", "graph_1")
"""Views of hot keys: one is written, the other has what was before. A store of before them gets them when it is
opened. `community` 0: `said` is a whole view, compressed; else that community as JSON."""

_SPAN = """
    trace_hi UBIGINT, trace_lo UBIGINT, span UBIGINT, parent UBIGINT, start_us BIGINT, duration_us UINTEGER,
    kind UTINYINT, status UTINYINT, facet UINTEGER, name UINTEGER, tier UINTEGER, client UINTEGER, detail UINTEGER,
    key UBIGINT, content_hi UBIGINT, content_lo UBIGINT, signature UBIGINT, saved_ms FLOAT, bytes UBIGINT,
    weight DOUBLE, origin UINTEGER, fields UINTEGER, rest VARCHAR
"""
_ROLLUP = "start BIGINT, facet UINTEGER, n UINTEGER, weight DOUBLE, square DOUBLE, saved DOUBLE, bytes DOUBLE"

TABLES = {
    "store": "version INTEGER",
    "words": "axis UTINYINT, id UINTEGER, text VARCHAR",
    "facets": "id UINTEGER, lookup BOOLEAN, hit BOOLEAN, modality UINTEGER, route UINTEGER, tenant UINTEGER,"
    " region UINTEGER, strategy UINTEGER, service UINTEGER, instance UINTEGER, outcome UINTEGER, reason UINTEGER",
    "sheets": "id UINTEGER, text VARCHAR",
    "spans": _SPAN,
    "unclosed": "width INTEGER, start BIGINT",
    **{f"rollup_{level}": _ROLLUP for level in LEVELS},
    **{f"keys_{level}": "start BIGINT, key UBIGINT, facet UINTEGER, n UINTEGER, weight DOUBLE" for level in KEY_LEVELS},
    "series": "id UINTEGER, name VARCHAR, service VARCHAR, instance VARCHAR, labels VARCHAR, delta BOOLEAN",
    "points": "start BIGINT, series UINTEGER, value DOUBLE",
    **dict.fromkeys(VIEWS, "start DOUBLE, service VARCHAR, instance VARCHAR, community BIGINT, said BLOB"),
}

_WORDS = ("name", "tier", "client", "detail", "modality", "route", "tenant", "region", "strategy", "service",
          "instance", "outcome", "reason")  # fmt: skip
WORDS = {name: at for at, name in enumerate(_WORDS)}
"""Which column a word is of."""


def _seen() -> str:
    """Spans as people read them."""
    texts = ", ".join(f"w_{name}.text AS {name}" for name in _WORDS)
    joins = " ".join(
        f"LEFT JOIN words w_{name} ON w_{name}.axis = {at} AND w_{name}.id = "
        + (f"s.{name}" if at < 4 else f"f.{name}")
        for name, at in WORDS.items()
    )
    hexes = "format('{:016x}{:016x}', s.trace_hi, s.trace_lo) AS trace, format('{:016x}', s.span) AS span"
    return (
        f"CREATE VIEW seen AS SELECT {hexes}, format('{{:016x}}', s.parent) AS parent, make_timestamp(s.start_us) AS"
        " start, s.duration_us, f.lookup, f.hit, format('{:016x}', s.key) AS key, s.saved_ms, s.bytes, s.weight,"
        f" {texts}, s.rest AS attributes FROM spans s JOIN facets f ON s.facet = f.id {joins}"
    )


def opened(path: str, notice: Any) -> Any:
    """A connection to the store at `path` (`:memory:`: nowhere), its tables made. notice: is told what was set aside.

    Raises `DashboardError` (another process has it, it is no store, it cannot be written) and `FormatVersionError`.
    """
    if path != ":memory:":
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = _looked_at(file)
        except OSError as error:
            raise DashboardError(f"the store {path} cannot be used: {error}; choose another --store") from error
        try:
            return _connected(path)
        except duckdb.Error as error:
            _refuse(path, error)
            if fresh:
                raise DashboardError(f"the store {path} cannot be made: {error}; choose another --store") from error
            notice(f"the store was damaged ({_line(error)}); it is kept as {_set_aside(file)}, a new one begins")
            _looked_at(file)
    return _connected(path)


def _looked_at(file: Path) -> bool:
    """Whether there is nothing yet; nothing of another's is touched. Raises `DashboardError`."""
    if file.exists() and file.stat().st_size:
        with file.open("rb") as opened_file:
            if opened_file.read(12)[8:] != MAGIC:
                raise DashboardError(f"{file} is no DuckDB file, and is left as it is; choose another --store")
        return False
    return True


def _connected(path: str) -> Any:
    config = {
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "allow_community_extensions": "false", "preserve_insertion_order": "true",
        "memory_limit": "1GiB", "max_temp_directory_size": "1GiB", "threads": str(max(1, min(8, os.cpu_count() or 1))),
    }  # fmt: skip
    if path == ":memory:":
        config["temp_directory"] = ""  # else it is a folder where it was started
    mask = os.umask(0o077)
    try:
        connection = duckdb.connect(path, config=config)
    finally:
        os.umask(mask)
    try:
        _prepared(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepared(connection: Any, path: str) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET python_enable_replacements = false")
    names = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not names:
        connection.execute("BEGIN")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
        connection.execute(_seen())
        connection.execute("INSERT INTO store VALUES (?)", [VERSION])
        connection.execute("COMMIT")
        return
    if "store" not in names:
        raise DashboardError(f"{path} is another program's DuckDB file, and is left as it is; choose another --store")
    (version,) = connection.execute("SELECT max(version) FROM store").fetchone()
    if version is not None and version > VERSION:
        raise FormatVersionError(
            f"{path} was written by a newer mmcache (format {version}); update, or another --store"
        )
    for name in VIEWS:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({TABLES[name]})")
    for name in TABLES:
        connection.execute(f"SELECT count(*) FROM {name}").fetchone()


def _refuse(path: str, error: Exception) -> None:
    """Raises where the file is sound."""
    text = str(error)
    if "Could not set lock" in text or "onflicting lock" in text:
        raise DashboardError(
            f"another process has the store {path}: one dashboard writes a store; stop it, or choose another --store"
        ) from error
    if isinstance(error, duckdb.PermissionException) or "Permission denied" in text or "Read-only" in text:
        raise DashboardError(f"the store {path} is not yours: {_line(error)}; choose another --store") from error
    if "newer version" in text or "version number" in text:
        raise FormatVersionError(f"{path} was written by another DuckDB: {_line(error)}") from error
    if "No space left" in text or isinstance(error, duckdb.OutOfMemoryException):
        raise DashboardError(f"the store {path} cannot be opened: {_line(error)}; make room") from error


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


def _set_aside(file: Path) -> Path:
    place = file.with_name(f"{file.name}.damaged-{int(time.time())}")
    number = 0
    while place.exists():
        number += 1
        place = place.with_name(f"{file.name}.damaged-{int(time.time())}-{number}")
    file.rename(place)
    log = file.with_name(file.name + ".wal")
    if log.exists():
        log.rename(place.with_name(place.name + ".wal"))
    return place
