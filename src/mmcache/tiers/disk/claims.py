"""Single flight between processes: byte-range locks of one empty file, freed by the kernel when their holder dies.

Open-file-description locks (`F_OFD_SETLK`) belong to the descriptor and not to the process, so that closing another
descriptor of the file does not lose them; the child of a fork closes its copy. Where the platform lacks them, POSIX
record locks serve. A key's lock is one byte, at 62 bits of the key's hash; two keys that share it
wait for each other, no more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import xxhash

from mmcache import forks
from mmcache.model.key import Key

_OFD = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class FileClaims:
    """`Claims` over one file. Where locking does not work every claim is granted: work is done twice, never lost."""

    fork_order = 2

    def __init__(self, path: Path, *, usable: bool = True) -> None:
        self._path, self._usable = path, usable
        self._fd = -1
        self._held: set[int] = set()
        self._lock = threading.Lock()
        forks.join(self)

    @staticmethod
    def _byte(key: Key) -> int:
        return xxhash.xxh3_64_intdigest(key) >> 2

    def acquire(self, key: Key) -> bool:
        """Try to become the leader; never blocks."""
        byte = self._byte(key)
        with self._lock:
            if byte in self._held:
                return False
            if self._usable:
                try:
                    self._set(fcntl.F_WRLCK, byte)
                except OSError as error:
                    if error.errno in (errno.EAGAIN, errno.EACCES) and self._fd >= 0:
                        return False
                    self._usable = False
            self._held.add(byte)
            return True

    def acquire_all(self, keys: Sequence[Key]) -> list[bool]:
        """See `Claims.acquire_all`."""
        return [self.acquire(key) for key in keys]

    def release(self, key: Key) -> None:
        """Give the claim back; a claim that is not held is no error."""
        byte = self._byte(key)
        with self._lock:
            if byte in self._held:
                self._held.discard(byte)
                if self._usable and self._fd >= 0:
                    self._set(fcntl.F_UNLCK, byte)

    def _set(self, kind: int, byte: int) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _OFD is not None:
            fcntl.fcntl(self._fd, _OFD, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
        else:
            command = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.lockf(self._fd, command, 1, byte)

    def close(self) -> None:
        """Free all claims."""
        with self._lock:
            self._held.clear()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def before_fork(self) -> None:
        """See `forks`."""
        self._lock.acquire()

    def after_fork(self, child: bool) -> None:
        """The parent's claims are not the child's."""
        self._lock.release()
        if child:
            self.close()
