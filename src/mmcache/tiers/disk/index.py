"""The index: one LMDB environment per folder and process, shared by its threads and by all tiers on that folder.

* A lookup begins a pooled read transaction (0.3 µs), so it always sees the last commit of any process: a key that was
  dropped anywhere is gone at the next lookup, and nothing has to be invalidated.
* A reader enters itself in a list and leaves it again; who must have the environment for itself (growing the map,
  replacing the file, forking) takes it away first and waits until that list is empty. Both run without a lock.
* `update` runs a function in a write transaction and runs it again after growing the map, so the function must have no
  effect beside its return value.
* The environment is not synced at commit (`MDB_NOSYNC`); `sync` does it. A process that dies loses nothing. A machine
  that loses power may leave an index that LMDB rejects: it is set aside.
* LMDB keeps freed pages, and with them old keys and names. `rebuild` writes what lives into a new environment, marks
  the old one as moved (every process checks that whenever the transaction number has changed) and deletes it.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

import lmdb

from mmcache import forks
from mmcache.model.errors import CorruptFrameError, InvalidInputError, TierClosedError, TierError
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.length import check, lengthened

T = TypeVar("T")
Transaction = Any
Database = Any

_TABLES = (b"frames", b"segments", b"places", b"memo", b"signatures", b"meta")
_BROKEN = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError,
    lmdb.IncompatibleError, lmdb.BadDbiError, lmdb.NotFoundError, lmdb.BadValsizeError,
)  # fmt: skip
_UNDECODABLE = (struct.error, CorruptFrameError, InvalidInputError)
"""What decoding raises for an entry that no version of ours has written."""
_CHUNK = 512


def is_full(error: TierError) -> bool:
    """Whether the index could not be written for want of space."""
    return isinstance(error.__cause__, lmdb.DiskError)


def _undecodable(error: Exception) -> lmdb.CorruptedError:
    damage = lmdb.CorruptedError(str(error))
    damage.__cause__ = error
    return damage


class _Moved(Exception):
    """This environment was replaced by another one."""


class Tables:
    """A transaction with its six tables."""

    __slots__ = ("dbs", "frames", "memo", "meta", "places", "segments", "signatures", "txn")

    def __init__(self, txn: Transaction, dbs: Sequence[Database]) -> None:
        self.txn, self.dbs = txn, dbs
        self.frames, self.segments, self.places, self.memo, self.signatures, self.meta = dbs

    def range(self, table: Database, first: bytes, limit: int = _CHUNK) -> list[tuple[bytes, bytes]]:
        """Up to `limit` entries from `first` on."""
        cursor = self.txn.cursor(db=table)
        if not cursor.set_range(first):
            return []
        return [entry for entry, _ in zip(cursor, range(limit), strict=False)]


class Index:
    """Thread-safe; survives forks, resizes and replacement by other processes."""

    fork_order = 1
    _open: ClassVar[WeakValueDictionary[Path, Index]] = WeakValueDictionary()
    _opening = threading.Lock()

    @classmethod
    def of(cls, layout: Layout, map_bytes: int, broken: Callable[[str], None]) -> Index:
        """The process's index of that folder: LMDB forbids opening one environment twice in a process."""
        with cls._opening:
            path = layout.root.resolve()
            index = cls._open.get(path)
            if index is None:
                index = cls._open[path] = cls(layout, map_bytes, broken)
            index._users += 1
        index.follow()
        return index

    def __init__(self, layout: Layout, map_bytes: int, broken: Callable[[str], None]) -> None:
        self._layout, self._map_bytes, self._broken = layout, map_bytes, broken
        self._lock = threading.RLock()
        self._readers: list[None] = []
        self._env: Any = None
        self._dbs: Sequence[Database] = ()
        self._path: Path | None = None
        self._file: os.stat_result | None = None
        self._seen = -1
        self._users = 0
        forks.join(self)

    # reading

    def look(self, key: bytes) -> bytes | None:
        """`lookup` of one key, without what a batch needs: this is the hit path."""
        readers = self._readers
        readers.append(None)
        try:
            env = self._env
            if env is not None:
                txn = env.begin(self._dbs[0])
                try:
                    if txn.id() == self._seen:
                        return txn.get(key)  # type: ignore[no-any-return]
                finally:
                    txn.abort()
        except lmdb.Error:
            pass  # `lookup` meets it again and heals it
        finally:
            readers.pop()
        return self.lookup([key])[0]

    def lookup(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The frames table's entries of the last commit."""
        while True:
            readers = self._readers
            readers.append(None)  # before `_env` is read: see `_alone`
            try:
                env = self._env
                if env is not None:
                    with env.begin(db=self._dbs[0]) as txn:
                        if txn.id() != self._seen:
                            self._check(txn)
                        return [txn.get(key) for key in keys]
            except (_Moved, lmdb.Error) as error:
                problem: Exception | None = error
            else:
                problem = None
            finally:
                readers.pop()
            self._heal(env, problem)

    def read(self, look: Callable[[Tables], T]) -> T:
        """Run `look` in a read transaction."""
        while True:
            self._readers.append(None)
            try:
                env = self._env
                if env is not None:
                    with env.begin() as txn:
                        if txn.id() != self._seen:
                            self._check(txn)
                        return look(Tables(txn, self._dbs))
            except (_Moved, lmdb.Error) as error:
                problem: Exception | None = error
            except _UNDECODABLE as error:
                problem = _undecodable(error)
            else:
                problem = None
            finally:
                self._readers.pop()
            self._heal(env, problem)

    def entries(self, table: Callable[[Tables], Database], first: bytes = b"\0") -> Iterator[tuple[bytes, bytes]]:
        """All entries of a table, by short transactions: no reader stays open between two of them."""
        while chunk := self.read(lambda tables, first=first: tables.range(table(tables), first)):  # type: ignore[misc]
            yield from chunk
            first = chunk[-1][0] + b"\0"

    def _check(self, txn: Transaction) -> None:
        if txn.get(b"moved", db=self._dbs[5]) is not None:
            raise _Moved
        self._seen = txn.id()

    # writing

    def update(self, change: Callable[[Tables], T]) -> T:
        """Run `change` in a write transaction, again if the map had to grow. Raises `TierError`."""
        with self._lock:
            while True:
                env = self._env
                problem: Exception | None = None
                if env is not None:
                    try:
                        with lengthened(env), env.begin(write=True) as txn:
                            if txn.get(b"moved", db=self._dbs[5]) is not None:
                                raise _Moved
                            return change(Tables(txn, self._dbs))
                    except (_Moved, lmdb.Error) as error:
                        problem = error
                    except _UNDECODABLE as error:
                        problem = _undecodable(error)
                self._heal(env, problem)

    def follow(self) -> None:
        """Leave an index whose file was deleted or exchanged under it: nobody else sees what is written there."""
        env, file = self._env, self._file
        if env is None or file is None:
            return
        try:
            gone = not os.path.samestat(os.stat(os.path.join(env.path(), "data.mdb")), file)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        with self._lock:
            if gone and self._env is env:
                self._close()

    def sync(self) -> None:
        """Return when all commits are on the disk. Raises `TierError`."""
        with self._lock:
            if self._env is None:
                self._heal(None, None)
            try:
                self._env.sync(True)
                self._env.reader_check()  # slots of killed processes would keep old pages from being reused
            except lmdb.Error as error:
                raise TierError(f"cannot sync the index in {self._layout.root}: {error}") from error

    # opening, growing, replacing

    def _heal(self, env: Any, problem: Exception | None) -> None:
        """Make the next attempt succeed, or raise `TierError`."""
        with self._lock:
            if self._users <= 0:
                raise TierClosedError("the disk tier was closed")
            if self._env is not env:
                return  # another thread did it
            if isinstance(problem, lmdb.MapFullError):
                with self._alone() as mine:
                    self._map_bytes = 2 * mine.info()["map_size"]
                    mine.set_mapsize(self._map_bytes)
            elif isinstance(problem, lmdb.MapResizedError):
                with self._alone() as mine:
                    mine.set_mapsize(0)
                    self._map_bytes = mine.info()["map_size"]
            elif isinstance(problem, _Moved | lmdb.PanicError):  # a panic (a failed write) ends with the environment
                self._close()
            elif isinstance(problem, lmdb.ReadersFullError):
                if not env.reader_check():
                    raise TierError("too many processes read the cache folder at once") from problem
            elif isinstance(problem, _BROKEN):
                self._replace_broken(problem)
            elif problem is not None:
                raise TierError(f"the index in {self._layout.root} failed: {problem}") from problem
            if self._env is None:
                self._reopen()

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        """The environment, with no transaction of this process in it. The caller holds the lock."""
        env, self._env = self._env, None
        while self._readers:
            time.sleep(0.00005)
        try:
            yield env
        finally:
            self._env = env

    def _close(self) -> None:
        with self._alone() as env:
            if env is not None:
                env.close()
        self._env, self._dbs, self._path, self._seen = None, (), None, -1

    def _reopen(self) -> None:
        path: Path | None = None
        for _ in range(100):
            try:
                path = self._find()
                env, self._dbs = self._open_at(path)
                self._path, self._file, self._env = path, (path / "data.mdb").stat(), env
                return
            except _Moved:
                continue
            except lmdb.MapResizedError:  # another process is growing it right now
                self._map_bytes *= 2
            except _BROKEN as error:
                self._path = path
                self._replace_broken(error)
            except (lmdb.Error, OSError) as error:
                if self._layout.current() == path:
                    raise TierError(f"cannot open the index in {self._layout.root}: {error}") from error
        raise TierError(f"the index in {self._layout.root} keeps changing")

    def _find(self) -> Path:
        path = self._layout.current()
        if path is None and not self._layout.read_only:
            with self._layout.changing():
                path = self._layout.current()
                if path is None:
                    path = self._layout.new_index()
                    self._layout.use(path)
        if path is None:
            raise TierError(f"{self._layout.root} cannot be written and holds no cache")
        return path

    def _open_at(self, path: Path) -> tuple[Any, Sequence[Database]]:
        read_only = self._layout.read_only
        data = path / "data.mdb"
        size = data.stat().st_size if data.exists() else 0
        env = lmdb.open(
            str(path), map_size=max(self._map_bytes, size), max_dbs=len(_TABLES), max_readers=1022,
            max_spare_txns=32, mode=0o600, create=False, readonly=read_only, readahead=False, sync=False,
            lock=not read_only or os.access(path / "lock.mdb", os.R_OK),
        )  # fmt: skip
        try:
            if size:
                check(env)
            if not read_only:
                env.reader_check()
            dbs = [env.open_db(name, create=not read_only) for name in _TABLES]
            with env.begin() as txn:
                moved = txn.get(b"moved", db=dbs[5])
        except lmdb.Error:
            env.close()
            raise
        if moved is not None and not read_only:  # its replacement was finished, the pointer perhaps was not
            env.close()
            with self._layout.changing():
                if self._layout.current() == path:  # else others have moved on meanwhile, maybe farther than that
                    self._layout.use(self._layout.root / moved.decode())
            raise _Moved
        return env, dbs

    def _replace_broken(self, problem: Exception) -> None:
        broken = self._path
        self._close()
        if self._layout.read_only:
            raise TierError(f"the index in {self._layout.root} is damaged and cannot be replaced: {problem}")
        with self._layout.changing():
            if broken is None or self._layout.current() != broken:
                return  # another process did it
            target = self._layout.aside(broken, "corrupt")
            self._layout.use(self._layout.new_index())
        self._broken(f"the index was damaged ({problem}); it was set aside as {target.name} and a new one started")

    def rebuild(self, keep_memo: Callable[[bytes, bytes], bool]) -> None:
        """Leave no trace of removed entries: copy what lives to a new environment and delete the old one."""
        with self._lock, self._layout.changing():
            path = self._layout.new_index()
            try:
                self.update(lambda tables: self._copy(tables, path, keep_memo))
            except TierError:
                shutil.rmtree(path, ignore_errors=True)
                raise
            self._close()
            self._layout.use(path)

    def _copy(self, tables: Tables, path: Path, keep_memo: Callable[[bytes, bytes], bool]) -> None:
        for stale in path.iterdir():  # of an attempt before the map grew
            stale.unlink()
        fresh = lmdb.open(str(path), map_size=self._map_bytes, max_dbs=len(_TABLES), mode=0o600, create=False)
        try:
            dbs = [fresh.open_db(name) for name in _TABLES]
            with fresh.begin(write=True) as txn:
                for name, old, new in zip(_TABLES, tables.dbs, dbs, strict=True):
                    entries: Iterable[tuple[bytes, bytes]] = tables.txn.cursor(db=old)
                    if name == b"memo":
                        entries = (entry for entry in entries if keep_memo(*entry))
                    txn.cursor(db=new).putmulti(entries, append=True)
        finally:
            fresh.close()
        tables.txn.put(b"moved", path.name.encode(), db=tables.meta)

    # life

    def map_size(self) -> int:
        """Bytes of address space that the index may fill before it grows."""
        return self._map_bytes

    def release(self) -> None:
        """One user less; the last one closes the environment."""
        with Index._opening, self._lock:
            self._users -= 1
            if self._users == 0:
                self._close()
                Index._open.pop(self._layout.root.resolve(), None)

    def before_fork(self) -> None:
        """See `forks`."""
        self._lock.acquire()
        self._close()

    def after_fork(self, child: bool) -> None:
        """See `forks`."""
        if child:
            self._lock, self._readers = threading.RLock(), []
            Index._opening = threading.Lock()
        else:
            self._lock.release()
