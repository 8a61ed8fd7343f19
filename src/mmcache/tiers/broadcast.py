"""`Broadcast`: which keys were invalidated, told to all processes of the machine through one small mapped file.

Layout: magic, version, slots (64 bytes), then the sequence number (8 bytes, padded to 64), then `SLOTS` keys of 48
bytes in a ring. A writer holds a file lock, writes its slots and then moves the sequence number; a reader compares
that number with the last one it saw (one memory read, done by the hit path itself) and reads the slots between.
Who fell behind by more than the ring is told to forget everything.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from mmcache.forks import Lock
from mmcache.model.errors import FormatVersionError, TierError
from mmcache.model.key import Key
from mmcache.tiers.reserve import reserve

SLOTS = 4096
_MAGIC = b"MMCB\x01\0\0\0"
_SEQUENCE = 64
_KEYS = 128
_KEY_BYTES = 48


class Broadcast:
    """One process's view of the ring. Safe under threads: the caller serialises `catch_up`."""

    _writing = Lock()
    """Of all rings of this process: `lockf` excludes other processes only, and two caches may share a folder."""

    def __init__(self, path: Path) -> None:
        """Open or create `path` (mode 0600). Raises `TierError` or `FormatVersionError`."""
        size = _KEYS + SLOTS * _KEY_BYTES
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if os.fstat(self._fd).st_size == 0:
                    reserve(self._fd, size)
                    os.pwrite(self._fd, _MAGIC, 0)
                magic, found = os.pread(self._fd, len(_MAGIC), 0), os.fstat(self._fd).st_size
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            if magic[:4] == _MAGIC[:4] and magic != _MAGIC:
                raise FormatVersionError(f"{path} is of a newer format; upgrade mmcache or use another folder")
            if magic != _MAGIC or found != size:
                raise TierError(f"{path} is damaged; stop all processes that use the folder and delete that file")
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            raise TierError(f"cannot open {path}: {error}") from error
        self.sequence = memoryview(self._map)[_SEQUENCE : _SEQUENCE + 8].cast("Q")
        """One unsigned 64-bit number, shared by all processes."""
        self.seen = self.sequence[0]
        weakref.finalize(self, os.close, self._fd)

    def publish(self, keys: Sequence[Key]) -> None:
        """Tell every process, this one included, to forget `keys`."""
        with self._writing:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                self._append(keys)
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _append(self, keys: Sequence[Key]) -> None:
        sequence = self.sequence[0]
        for n, key in enumerate(keys):
            start = _KEYS + (sequence + n) % SLOTS * _KEY_BYTES
            self._map[start : start + _KEY_BYTES] = key
        self.sequence[0] = sequence + len(keys)

    def catch_up(self) -> list[Key] | None:
        """Keys invalidated since the last call; None = too many, forget everything."""
        start, end = self.seen, self.sequence[0]
        places = [_KEYS + n % SLOTS * _KEY_BYTES for n in range(start, end)] if end - start <= SLOTS else []
        keys = [Key.from_bytes(self._map[place : place + _KEY_BYTES]) for place in places]
        self.seen = end
        lost = self.sequence[0] - start > SLOTS  # overwritten before, or while, we read
        return None if lost else keys
