"""`Broadcast`: which keys were invalidated, told to all processes of the machine through one small mapped file.

Layout: magic, version, slots (64 bytes), then the sequence number (8 bytes, padded to 64), then `SLOTS` keys of 48
bytes in a ring. A writer holds a file lock, writes its slots and then moves the sequence number; a reader compares
that number with the last one it saw (one memory read, done by the hit path itself) and reads the slots between.
Who fell behind by more than the ring is told to forget everything.

The lock is a `flock`: it belongs to an open file and not, as with `lockf`, to the process, so that two caches of one
process exclude each other and closing one of them does not free the other's lock.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mmcache import forks
from mmcache.model.errors import FormatVersionError, TierError
from mmcache.model.key import Key
from mmcache.tiers.reserve import reserve

SLOTS = 4096
_MAGIC = b"MMCB\x01\0\0\0"
_SEQUENCE = 64
_KEYS = 128
_KEY_BYTES = 48


class _Turn:
    """One writer a process at a time, over all rings, and none while the process forks."""

    fork_order = 3

    def __init__(self) -> None:
        self.lock = threading.Lock()
        forks.join(self)

    def before_fork(self) -> None:
        """See `forks`."""
        self.lock.acquire()

    def after_fork(self, child: bool) -> None:
        """See `forks`."""
        self.lock.release()


_turn = _Turn()


class Broadcast:
    """One process's view of the ring. Safe under threads: the caller serialises `catch_up`."""

    fork_order = 3

    def __init__(self, path: Path) -> None:
        """Open or create `path` (mode 0600). Raises `TierError` or `FormatVersionError`."""
        self._path = path
        self._close: weakref.finalize[[int], Broadcast] | None = None
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._map = _mapped(fd, path)
            finally:
                os.close(fd)
        except OSError as error:
            raise TierError(f"cannot open {path}: {error}") from error
        self.sequence = memoryview(self._map)[_SEQUENCE : _SEQUENCE + 8].cast("Q")
        """One unsigned 64-bit number, shared by all processes; valid after `close` too."""
        self.seen = self.sequence[0]
        self._own: set[int] = set()
        """Numbers from `seen` on that were published for the others only."""
        forks.join(self)

    def publish_to_others(self, keys: Sequence[Key]) -> None:
        """Tell every process but this view of it; what others said meanwhile is still heard. Raises `TierError`.

        The caller serialises this with `catch_up`."""
        said = self.publish(keys)
        if said == self.seen:
            self.seen += len(keys)
        else:
            self._own.update(range(said, said + len(keys)))

    def publish(self, keys: Sequence[Key]) -> int:
        """Tell every process, this one included, to forget `keys`; the sequence number before. Raises `TierError`."""
        with _turn.lock:
            try:
                fd = self._opened()
            except FileNotFoundError:
                return self._append(keys)  # the folder was deleted: who has it mapped still hears
            except OSError as error:
                raise TierError(f"cannot open {self._path}: {error}") from error
            with _locked(fd):
                return self._append(keys)

    def _opened(self) -> int:
        if self._close is None:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._close, self._fd = weakref.finalize(self, os.close, fd), fd
        return self._fd

    def _append(self, keys: Sequence[Key]) -> int:
        sequence = self.sequence[0]
        for n, key in enumerate(keys):
            start = _KEYS + (sequence + n) % SLOTS * _KEY_BYTES
            self._map[start : start + _KEY_BYTES] = key
        self.sequence[0] = sequence + len(keys)
        return sequence

    def catch_up(self) -> list[Key] | None:
        """Keys invalidated since the last call; None = too many, forget everything."""
        start, self.seen = self.seen, self.sequence[0]
        own, self._own = self._own, set()
        return self.since(start, self.seen, own)

    def since(self, start: int, end: int | None = None, but: Collection[int] = ()) -> list[Key] | None:
        """Keys invalidated from the sequence number `start` on (up to `end`, without the numbers `but`); None = too
        many to know."""
        end = self.sequence[0] if end is None else end
        numbers = [n for n in range(start, end) if n not in but] if end - start <= SLOTS else []
        places = [_KEYS + n % SLOTS * _KEY_BYTES for n in numbers]
        keys = [Key.from_bytes(self._map[place : place + _KEY_BYTES]) for place in places]
        lost = self.sequence[0] - start > SLOTS  # overwritten before, or while, we read
        return None if lost else keys

    def close(self) -> None:
        """Close the file; memory stays mapped for as long as somebody looks at `sequence`."""
        with _turn.lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._close is not None:
            self._close()
            self._close = None

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """A lock belongs to the open file, which parent and child would share: the child opens its own."""
        if child:
            self._let_go()


def _mapped(fd: int, path: Path) -> mmap.mmap:
    size = _KEYS + SLOTS * _KEY_BYTES
    with _turn.lock, _locked(fd):
        if os.fstat(fd).st_size == 0:
            reserve(fd, size)
            os.pwrite(fd, _MAGIC, 0)
        magic, found = os.pread(fd, len(_MAGIC), 0), os.fstat(fd).st_size
    if magic[:4] == _MAGIC[:4] and magic != _MAGIC:
        raise FormatVersionError(f"{path} is of a newer format; upgrade mmcache or use another folder")
    if magic != _MAGIC or found != size:
        raise TierError(f"{path} is damaged; stop all processes that use the folder and delete that file")
    return mmap.mmap(fd, size)


@contextmanager
def _locked(fd: int) -> Iterator[None]:
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
