"""`Database`: one SQLite file that processes share: reads beside writes, forks, and a file that is lost or damaged.

Two connections, each with a lock: in WAL mode who reads waits for nobody who writes, not even for another program that
holds the write lock for minutes. Before a fork both are closed: SQLite's connections must not cross one.

Each new file has an `epoch` of its own: 16 random bytes. Whoever keeps something elsewhere under names made with it
finds none of that again once the file was lost, or damaged and set aside.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from mmcache.forks import join
from mmcache.model.errors import FormatVersionError, TierError

BUSY_SECONDS = 1.0
"""Waited for another program's write; once that was in vain, a hundredth, until a write succeeds."""
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"


class Database:
    """An open database. Safe under threads and forks. What fails raises `TierError`."""

    def __init__(self, path: Path | None, schema: str, format: int) -> None:
        """At `path`, made with `schema` where it is missing; None: in memory, for this process. Raises
        `FormatVersionError` for a newer format. A damaged file is set aside."""
        self._where = path or "in memory"
        self._reading = _Link(path, schema, format)
        self._writing = self._reading if path is None else _Link(path, schema, format)
        self._patient = True
        self.read(lambda connection: None)

    def read(self, work: Work[T]) -> T:
        """What `work` reads; in one statement, or what it reads is of several moments."""
        return self._run(self._reading, work)

    def snapshot(self, work: Work[T]) -> T:
        """What `work` reads, all of one moment."""
        return self._run(self._reading, lambda connection: _transaction(connection, "BEGIN", work))

    def write(self, work: Work[T], *, durable: bool = False) -> T:
        """In one transaction. `durable`: it survives a power cut; else it survives whatever befalls processes."""

        def written(connection: sqlite3.Connection) -> T:
            patience = BUSY_SECONDS if self._patient or durable else BUSY_SECONDS / 100
            connection.execute(f"PRAGMA busy_timeout = {1000 * patience:.0f}")
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._patient = False
            done = _transaction(connection, "BEGIN IMMEDIATE", work)
            self._patient = True
            return done

        return self._run(self._writing, written)

    def compact(self) -> None:
        """Leave nothing of deleted rows in the file, nor beside it. Raises `TierError` while others read it."""

        def compacted(connection: sqlite3.Connection) -> None:
            connection.execute("VACUUM")
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise sqlite3.OperationalError("other programs read it: do this again")

        self._run(self._writing, compacted)

    def version(self) -> tuple[int, int]:
        """Changes when anybody has written since, and when the file was opened anew. Microseconds."""
        number = self.read(lambda connection: int(connection.execute("PRAGMA data_version").fetchone()[0]))
        return self._reading.opened, number

    def epoch(self) -> bytes:
        """16 bytes, other for each new file; empty in memory, where nothing can be lost before the process is."""
        row = self.read(lambda connection: connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone())
        return bytes(row[0]) if row else b""

    def renew(self) -> None:
        """Give the file another epoch, as if it were new: nobody knows what is outdated. Raises `TierError`."""
        fresh = secrets.token_bytes(16)
        query = "INSERT OR REPLACE INTO meta VALUES ('epoch', ?)"
        self.write(lambda connection: connection.execute(query, (fresh,)), durable=True)

    def close(self) -> None:
        """Idempotent."""
        for link in {id(link): link for link in (self._reading, self._writing)}.values():
            link.close()

    def _run(self, link: _Link, work: Work[T]) -> T:
        try:
            return link.run(work)
        except (sqlite3.Error, OSError) as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            advice = "Another program is writing to it" if busy else "See that its folder can be written and has space"
            raise TierError(f"the ledger {self._where} failed: {error}. {advice}") from error


class _Link:
    """One connection, opened where it must be."""

    fork_order = 4

    def __init__(self, path: Path | None, schema: str, format: int) -> None:
        self._path, self._schema, self._format = path, schema, format
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None
        """Device and inode of what is open."""
        self.connection: sqlite3.Connection | None = None
        self.opened = 0
        """How often."""
        self._ended = False
        join(self)

    def run(self, work: Work[T]) -> T:
        """Alone. Raises `sqlite3.Error`, `OSError`."""
        with self._lock:
            try:
                return work(self._current())
            except sqlite3.DatabaseError as error:
                if not _damaged(error):
                    raise
            self._set_aside()
            return work(self._current())

    def close(self) -> None:
        """What is in memory only is gone."""
        with self._lock:
            self._ended = True
            self._close()

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()
        if self._path is not None:
            self._close()

    def after_fork(self, child: bool) -> None:
        """See `Forkable`."""
        self._lock.release()

    def _close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _current(self) -> sqlite3.Connection:
        if self.connection is not None and (self._path is None or _identity(self._path) == self._file):
            return self.connection
        if self._ended:
            raise sqlite3.ProgrammingError("it is closed")
        self._close()  # the file was removed, or another is in its place
        self._file = self._made()
        self.opened += 1
        connection = sqlite3.connect(
            self._path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self.connection = connection
        return connection

    def _made(self) -> tuple[int, int] | None:
        """The file is there, for its owner only. An existing one is not opened here: closing it would end the locks
        of all of SQLite's connections of this process."""
        if self._path is None:
            return None
        if (found := _identity(self._path)) is not None:
            return found
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(self._path.parent):
            if _identity(self._path) is None:
                for suffix in ("-wal", "-shm"):  # of a file that is no more
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            return _identity(self._path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        known = _known(connection)
        if "format" not in known:
            if self._path is None:
                self._create(connection)
            else:
                with _alone(self._path.parent):
                    if "format" not in _known(connection):
                        connection.execute("PRAGMA journal_mode = WAL")
                        self._create(connection)
            known = _known(connection)
        found = known["format"]
        if not isinstance(found, int) or found > self._format:
            raise FormatVersionError(
                f"{self._path} has format {found!r}; this mmcache reads up to {self._format}; update it"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        def created(connection: sqlite3.Connection) -> None:
            for statement in (_META, *filter(str.strip, self._schema.split(";"))):
                connection.execute(statement)
            begin = time.time_ns() // 1000  # numbers go on from those of a file that was here before
            numbered = "SELECT name, ? FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' AND type = 'table'"
            connection.execute(f"INSERT INTO sqlite_sequence {numbered}", (begin,))
            connection.execute("INSERT INTO meta VALUES ('format', ?)", (self._format,))
            if self._path is not None:
                connection.execute("INSERT INTO meta VALUES ('epoch', ?)", (secrets.token_bytes(16),))

        _transaction(connection, "BEGIN IMMEDIATE", created)

    def _set_aside(self) -> None:
        self._close()
        if self._path is None:
            return
        with _alone(self._path.parent):
            if _identity(self._path) != self._file:  # another process has done so
                return
            damaged = f"{self._path.name}.damaged-{time.time_ns()}"
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    self._path.with_name(self._path.name + suffix).rename(self._path.with_name(damaged + suffix))


def _transaction(connection: sqlite3.Connection, begin: str, work: Work[T]) -> T:
    connection.execute(begin)
    try:
        done = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled it back themselves
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return done


def _known(connection: sqlite3.Connection) -> dict[str, object]:
    """What the file says of itself; empty for a new one."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return {}
    return dict(connection.execute("SELECT name, value FROM meta WHERE name IN ('format', 'epoch')").fetchall())


def _damaged(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process makes or moves a database in `folder`."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
