"""`Ledger`: what near answers are found and trusted by, at rest: one SQLite file in the cache's folder.

Shared by all processes of a machine. It holds no answers: those are blocks of the cache, and an answer that is gone
there is gone. It holds texts and embeddings of questions, in clear (mode 0600); scopes whose
codec seals blocks are kept out.

* `entries`: stored questions, found again after a restart; new ones reach other processes by their number.
* `outcomes`: what was judged right and wrong, in one order for all processes, so that all learn the same. Older
  ones are folded into `checkpoints`.
* `sources`: how often each document, tool, prompt version, model alias… has changed.
* `populations`, `counts`: for reports.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.forks import Lock
from mmcache.model.errors import FormatVersionError, TierError

FILE = "semantic.sqlite"
FORMAT = 1
BUSY_SECONDS = 5.0
TRIM_EVERY = 128
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
  number INTEGER PRIMARY KEY AUTOINCREMENT, scope BLOB NOT NULL, key BLOB NOT NULL UNIQUE, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS entries_scope ON entries (scope);
CREATE TABLE IF NOT EXISTS outcomes (
  number INTEGER PRIMARY KEY AUTOINCREMENT, population BLOB NOT NULL, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS outcomes_population ON outcomes (population, number);
CREATE TABLE IF NOT EXISTS checkpoints (
  population BLOB PRIMARY KEY, upto INTEGER NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (id BLOB PRIMARY KEY, edition INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS populations (
  id BLOB PRIMARY KEY, tenant TEXT, namespace TEXT, model TEXT, kind TEXT, max_error REAL, confidence REAL,
  judge TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (
  population BLOB, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (population, name)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Population:
    """Whose promise it is: one scope and kind of prompt."""

    id: bytes
    tenant: str
    namespace: str
    model: str
    kind: str
    max_error: float
    confidence: float
    judge: str


class Ledger:
    """An open ledger. Safe under threads and forks. Every method raises `TierError`."""

    def __init__(self, folder: Path | None) -> None:
        """In `folder`, made where it is missing; None: in memory, for this process. Raises `FormatVersionError` for a
        newer format. A damaged file is set aside, and a new `epoch` puts what rested on it out of reach."""
        self._path = None if folder is None else folder / FILE
        self._lock, self._pid = Lock(), 0
        self._open()

    # The file -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            self._connect()
        except sqlite3.DatabaseError as error:
            if self._path is None or isinstance(error, sqlite3.OperationalError):
                raise TierError(f"cannot open {self._path or 'the ledger'}: {error}") from error
            self._set_aside()
            self._connect()
            self._connection.execute("INSERT INTO meta VALUES ('epoch', ?)", (secrets.token_bytes(16),))

    def _connect(self) -> None:
        if self._path is not None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._pid = os.getpid()
        connection = sqlite3.connect(
            self._path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last outcomes, never the file
        connection.executescript(_SCHEMA)
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT,))
        (found,) = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        if not isinstance(found, int) or found > FORMAT:
            connection.close()
            raise FormatVersionError(f"{self._path} has format {found!r}; this mmcache reads up to {FORMAT}; update it")
        self._connection = connection

    def _set_aside(self) -> None:
        assert self._path is not None
        damaged = self._path.with_name(f"{FILE}.damaged-{time.time_ns()}")
        for suffix in ("", "-wal", "-shm"):
            part = self._path.with_name(FILE + suffix)
            if part.exists():
                part.rename(damaged.with_name(damaged.name + suffix))

    @contextmanager
    def _using(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """The connection, alone; in a transaction where it writes."""
        with self._lock:
            try:
                if self._pid != os.getpid():  # SQLite's connections must not cross a fork, not even to be closed
                    self._leaked = self._connection
                    self._connect()
                if not write:
                    yield self._connection
                    return
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise TierError(f"the ledger {self._path or ''} failed: {error}") from error

    def version(self) -> int:
        """A number that changes when another process has written. Microseconds."""
        with self._using() as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def epoch(self) -> bytes:
        """Empty, or 16 bytes since a damaged ledger was set aside: they enter every key."""
        with self._using() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        return bytes(row[0]) if row else b""

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._pid == os.getpid():
                self._connection.close()

    # Questions ------------------------------------------------------------------------------------------------------

    def add(self, key: bytes, scope: bytes, record: bytes, limit: int) -> int:
        """Remember an entry in place of an earlier one of `key`; its number. Some 100 beyond `limit`, the oldest go."""
        with self._using(write=True) as connection:
            connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            number = connection.execute(
                "INSERT INTO entries (scope, key, record) VALUES (?, ?, ?)", (scope, key, record)
            ).lastrowid
            assert number is not None
            if number % TRIM_EVERY == 0:
                beyond = "SELECT number FROM entries ORDER BY number DESC LIMIT 1 OFFSET ?"
                connection.execute(f"DELETE FROM entries WHERE number <= ({beyond})", (limit,))
        return number

    def forget(self, keys: Iterable[bytes]) -> None:
        """Entries whose answers are gone."""
        with self._using(write=True) as connection:
            connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])

    def entries(self, after: int, scope: bytes | None = None) -> list[tuple[int, bytes, bytes]]:
        """(number, key, record) of all since `after`, oldest first; of one scope, or of all."""
        query, given = "SELECT number, key, record FROM entries WHERE number > ?", [after]
        if scope is not None:
            query += " AND scope = ?"
        with self._using() as connection:
            return connection.execute(query + " ORDER BY number", [*given, *([scope] if scope else [])]).fetchall()

    # Outcomes -------------------------------------------------------------------------------------------------------

    def judged(self, population: bytes, record: bytes) -> int:
        """Append an outcome; its number."""
        with self._using(write=True) as connection:
            number = connection.execute(
                "INSERT INTO outcomes (population, record) VALUES (?, ?)", (population, record)
            ).lastrowid
        assert number is not None
        return number

    def outcomes(self, population: bytes, after: int) -> tuple[tuple[int, bytes] | None, list[tuple[int, bytes]]]:
        """What a process that has learned up to `after` must learn: a checkpoint to go on from, where older outcomes
        are folded already, and (number, record) of those since, in order."""
        with self._using() as connection, _snapshot(connection):
            found = connection.execute(
                "SELECT upto, state FROM checkpoints WHERE population = ? AND upto > ?", (population, after)
            ).fetchone()
            rows = connection.execute(
                "SELECT number, record FROM outcomes WHERE population = ? AND number > ? ORDER BY number",
                (population, found[0] if found else after),
            ).fetchall()
        return found, rows

    def fold(self, population: bytes, upto: int, state: bytes) -> None:
        """All outcomes up to `upto` are in `state`: a newer checkpoint wins, the outcomes go."""
        with self._using(write=True) as connection:
            connection.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?) ON CONFLICT (population) DO UPDATE SET upto = excluded.upto, "
                "state = excluded.state WHERE excluded.upto > upto",
                (population, upto, state),
            )
            connection.execute("DELETE FROM outcomes WHERE population = ? AND number <= ?", (population, upto))

    # Sources --------------------------------------------------------------------------------------------------------

    def changed(self, source: bytes) -> int:
        """`source` has changed; its new edition, durable when this returns."""
        with self._using(write=True) as connection:
            return int(
                connection.execute(
                    "INSERT INTO sources VALUES (?, 1) "
                    "ON CONFLICT (id) DO UPDATE SET edition = edition + 1 RETURNING edition",
                    (source,),
                ).fetchone()[0]
            )

    def editions(self) -> dict[bytes, int]:
        """Of every source that ever changed."""
        with self._using() as connection:
            return {bytes(id): int(edition) for id, edition in connection.execute("SELECT id, edition FROM sources")}

    def recall(self, name: str) -> str | None:
        """What was remembered under `name`."""
        with self._using() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def remember(self, name: str, value: str) -> None:
        """Instead of what was remembered before."""
        with self._using(write=True) as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # Reports --------------------------------------------------------------------------------------------------------

    def introduce(self, population: Population) -> None:
        """Say what a population's id stands for."""
        with self._using(write=True) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO populations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    population.id, population.tenant, population.namespace, population.model, population.kind,
                    population.max_error, population.confidence, population.judge,
                ),
            )  # fmt: skip

    def populations(self) -> list[Population]:
        """All that were introduced."""
        with self._using() as connection:
            return [
                Population(*row) for row in connection.execute("SELECT * FROM populations ORDER BY tenant, model, kind")
            ]

    def count(self, added: Mapping[tuple[bytes, str], int]) -> None:
        """Add to counters of (population, name)."""
        with self._using(write=True) as connection:
            connection.executemany(
                "INSERT INTO counts VALUES (?, ?, ?) "
                "ON CONFLICT (population, name) DO UPDATE SET value = value + excluded.value",
                [(population, name, value) for (population, name), value in added.items()],
            )

    def counts(self, population: bytes) -> dict[str, int]:
        """All counters of a population."""
        with self._using() as connection:
            return dict(
                connection.execute("SELECT name, value FROM counts WHERE population = ?", (population,)).fetchall()
            )


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """What is read inside is of one moment; writers go on."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
