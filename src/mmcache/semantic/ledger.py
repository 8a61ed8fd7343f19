"""`Ledger`: what near answers are found and trusted by, at rest: one SQLite file in the cache's folder.

Shared by all processes of a machine. It holds no answers: those are blocks of the cache, and an answer that is gone
there is gone. It holds texts and embeddings of questions, in clear (mode 0600); scopes whose
codec seals blocks are kept out.

* `entries`: stored questions, found again after a restart; new ones reach other processes by their number.
* `outcomes`: what was judged right and wrong, in one order for all processes, so that all learn the same. Older
  ones are folded into `checkpoints`.
* `sources`: the edition of each document, tool, prompt version, model alias… that has changed.
* `populations`, `counts`: for reports, and whose questions are whose.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from mmcache.semantic.database import Database

FILE = "semantic.sqlite"
FORMAT = 1
TRIM_EVERY = 128
_SCHEMA = """
CREATE TABLE entries (
  number INTEGER PRIMARY KEY AUTOINCREMENT, scope BLOB NOT NULL, key BLOB NOT NULL UNIQUE, record BLOB NOT NULL,
  created REAL NOT NULL);
CREATE INDEX entries_scope ON entries (scope);
CREATE TABLE outcomes (
  number INTEGER PRIMARY KEY AUTOINCREMENT, population BLOB NOT NULL, record BLOB NOT NULL);
CREATE INDEX outcomes_population ON outcomes (population, number);
CREATE TABLE checkpoints (population BLOB PRIMARY KEY, upto INTEGER NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX checkpoints_upto ON checkpoints (upto);
CREATE TABLE sources (id BLOB PRIMARY KEY, edition INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX sources_edition ON sources (edition);
CREATE TABLE populations (
  id BLOB PRIMARY KEY, scope BLOB NOT NULL, tenant TEXT, namespace TEXT, model TEXT, kind TEXT, max_error REAL,
  confidence REAL, check_share REAL, judge TEXT) WITHOUT ROWID;
CREATE TABLE counts (
  population BLOB, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (population, name)) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Population:
    """Whose promise it is: one scope and kind of prompt."""

    id: bytes
    scope: bytes
    tenant: str
    namespace: str
    model: str
    kind: str
    max_error: float
    confidence: float
    check_share: float
    judge: str


_COLUMNS = ", ".join(field.name for field in fields(Population))
_PLACES = ", ".join("?" for _ in fields(Population))
_INTRODUCE = f"INSERT OR REPLACE INTO populations ({_COLUMNS}) VALUES ({_PLACES})"


class Ledger(Database):
    """An open ledger. Safe under threads and forks. Every method raises `TierError`."""

    def __init__(self, folder: Path | None) -> None:
        """In `folder`, made where it is missing; None: in memory, for this process. Raises `FormatVersionError` for a
        newer format. A damaged file is set aside, also where that is found out later. The new one's `epoch` puts what
        rested on the old one out of reach, as it does where the file was lost."""
        super().__init__(None if folder is None else folder / FILE, _SCHEMA, FORMAT)

    # Questions ------------------------------------------------------------------------------------------------------

    def add(self, key: bytes, scope: bytes, record: bytes, limit: int) -> int:
        """Remember an entry in place of an earlier one of `key`; its number. Some 100 beyond `limit`, the oldest go."""

        def added(connection: sqlite3.Connection) -> int:
            connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            number = connection.execute(
                "INSERT INTO entries (scope, key, record, created) VALUES (?, ?, ?, ?)",
                (scope, key, record, time.time()),
            ).lastrowid
            assert number is not None
            if number % TRIM_EVERY == 0:
                beyond = "SELECT number FROM entries ORDER BY number DESC LIMIT 1 OFFSET ?"
                connection.execute(f"DELETE FROM entries WHERE number <= ({beyond})", (limit,))
            return number

        return self.write(added)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Entries whose answers are gone."""
        gone = [(key,) for key in keys]
        if gone:
            self.write(lambda connection: connection.executemany("DELETE FROM entries WHERE key = ?", gone))

    def entries(self, after: int, scope: bytes | None = None) -> list[tuple[int, bytes, bytes]]:
        """(number, key, record) of all since `after`, oldest first; of one scope, or of all."""
        query, given = "SELECT number, key, record FROM entries WHERE number > ?", (after, *([scope] if scope else []))
        if scope is not None:
            query += " AND scope = ?"
        return self.read(lambda connection: connection.execute(query + " ORDER BY number", given).fetchall())

    # Outcomes -------------------------------------------------------------------------------------------------------

    def judged(self, population: bytes, record: bytes) -> int:
        """Append an outcome; its number."""
        query = "INSERT INTO outcomes (population, record) VALUES (?, ?) RETURNING number"
        return self.write(lambda connection: int(connection.execute(query, (population, record)).fetchone()[0]))

    def judged_since(self, after: int) -> tuple[int, set[bytes]]:
        """The last outcome's number, and the populations that have outcomes after `after`, or had some that are folded
        by now."""

        def found(connection: sqlite3.Connection) -> tuple[int, set[bytes]]:
            last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outcomes'").fetchone()
            moved = connection.execute(
                "SELECT population FROM outcomes WHERE number > ? UNION SELECT population FROM checkpoints "
                "WHERE upto > ?",
                (after, after),
            )
            return (last[0] if last else 0), {population for (population,) in moved}

        return self.snapshot(found)

    def outcomes(self, population: bytes, after: int) -> tuple[tuple[int, bytes] | None, list[tuple[int, bytes]]]:
        """What a process that has learned up to `after` must learn: a checkpoint to go on from, where older outcomes
        are folded already, and (number, record) of those since, in order."""

        def found(
            connection: sqlite3.Connection,
        ) -> tuple[tuple[int, bytes] | None, list[tuple[int, bytes]]]:
            checkpoint = connection.execute(
                "SELECT upto, state FROM checkpoints WHERE population = ? AND upto > ?", (population, after)
            ).fetchone()
            rows = connection.execute(
                "SELECT number, record FROM outcomes WHERE population = ? AND number > ? ORDER BY number",
                (population, checkpoint[0] if checkpoint else after),
            ).fetchall()
            return checkpoint, rows

        return self.snapshot(found)

    def fold(self, population: bytes, upto: int, state: bytes) -> None:
        """All outcomes up to `upto` are in `state`: a newer checkpoint wins, the outcomes go."""

        def folded(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?) ON CONFLICT (population) DO UPDATE SET upto = excluded.upto, "
                "state = excluded.state WHERE excluded.upto > upto",
                (population, upto, state),
            )
            connection.execute("DELETE FROM outcomes WHERE population = ? AND number <= ?", (population, upto))

        self.write(folded)

    # Sources --------------------------------------------------------------------------------------------------------

    def changed(self, source: bytes) -> int:
        """`source` has changed; its new edition, on disk when this returns, so that a power cut does not undo it."""
        now = time.time_ns() // 1000

        def counted(connection: sqlite3.Connection) -> int:
            return int(
                connection.execute(
                    "INSERT INTO sources SELECT ?, max(coalesce(max(edition), 0) + 1, ?) FROM sources WHERE true "
                    "ON CONFLICT (id) DO UPDATE SET edition = excluded.edition RETURNING edition",
                    (source, now),
                ).fetchone()[0]
            )

        return self.write(counted, durable=True)

    def editions(self) -> dict[bytes, int]:
        """Of every source that ever changed."""
        return self.editions_since(0)[1]

    def editions_since(self, after: int) -> tuple[int, dict[bytes, int]]:
        """The latest edition of all, or `after`; and those above `after`, by source. Each change of any source has an
        edition that no other ever had, higher than all before: microseconds since 1970, where the clock goes right."""
        query = "SELECT id, edition FROM sources WHERE edition > ?"
        found = dict(self.read(lambda connection: connection.execute(query, (after,)).fetchall()))
        return max(found.values(), default=after), found

    def recall(self, name: str) -> str | None:
        """What was remembered under `name`."""
        query = "SELECT value FROM meta WHERE name = ?"
        row = self.read(lambda connection: connection.execute(query, (name,)).fetchone())
        return None if row is None else str(row[0])

    def remember(self, name: str, value: str) -> None:
        """Instead of what was remembered before."""
        self.write(lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value)))

    # Reports --------------------------------------------------------------------------------------------------------

    def introduce(self, population: Population) -> None:
        """Say what a population's id stands for."""
        self.write(lambda connection: connection.execute(_INTRODUCE, astuple(population)))

    def populations(self) -> list[Population]:
        """All that were introduced."""
        query = f"SELECT {_COLUMNS} FROM populations ORDER BY tenant, model, kind"
        return [Population(*row) for row in self.read(lambda connection: connection.execute(query).fetchall())]

    def count(self, added: Mapping[tuple[bytes, str], int], populations: Iterable[Population] = ()) -> None:
        """Add to counters of (population, name), and introduce `populations`."""
        query = (
            "INSERT INTO counts VALUES (?, ?, ?) "
            "ON CONFLICT (population, name) DO UPDATE SET value = value + excluded.value"
        )
        rows = [(population, name, value) for (population, name), value in added.items()]
        introduced = [astuple(one) for one in populations]

        def counted(connection: sqlite3.Connection) -> None:
            connection.executemany(_INTRODUCE, introduced)
            connection.executemany(query, rows)

        self.write(counted)

    def counts(self, population: bytes) -> dict[str, int]:
        """All counters of a population."""
        query = "SELECT name, value FROM counts WHERE population = ?"
        return dict(self.read(lambda connection: connection.execute(query, (population,)).fetchall()))

    # Removal --------------------------------------------------------------------------------------------------------

    def purge(
        self, chosen: Callable[[Population], bool] | None, before: float | None = None, *, dry_run: bool = False
    ) -> int:
        """Remove what is known of populations for good: questions, and, unless only older ones are meant, what was
        learned and counted; how many questions. Editions stay.

        chosen: None = all, also what no population is known of. before: Unix seconds, only questions kept before.
        """
        born = (float("inf") if before is None else before,)
        hit = [one for one in self.populations() if chosen is None or chosen(one)]
        scopes = None if chosen is None else {one.scope for one in hit}

        def counted(connection: sqlite3.Connection) -> int:
            found = connection.execute("SELECT scope FROM entries WHERE created < ?", born).fetchall()
            return sum(scopes is None or scope in scopes for (scope,) in found)

        def removed(connection: sqlite3.Connection) -> int:
            count = counted(connection)
            if scopes is None:
                connection.execute("DELETE FROM entries WHERE created < ?", born)
            else:
                connection.executemany(
                    "DELETE FROM entries WHERE created < ? AND scope = ?", [(*born, scope) for scope in scopes]
                )
            for table, column in _LEARNED if before is None else ():
                if scopes is None:
                    connection.execute(f"DELETE FROM {table}")
                else:
                    connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(one.id,) for one in hit])
            return count

        if dry_run:
            return self.read(counted)
        count = self.write(removed)
        self.compact()
        return count


_LEARNED = (("outcomes", "population"), ("checkpoints", "population"), ("counts", "population"), ("populations", "id"))
