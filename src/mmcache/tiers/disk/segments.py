"""Segment files: append-only, 64-byte aligned frames, one writer each, viewed in place by everyone.

A file is allocated whole before a byte is written, so that a full disk shows there and never as a
SIGBUS under a reader. Its writer holds an flock on it: a lock that is free tells that the writer is gone, whatever
became of its process id. Views hold the mapping; unlinking the file takes nothing from them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

from mmcache.model.errors import CorruptFrameError
from mmcache.model.event import RefuseReason
from mmcache.model.frame import PRELUDE_BYTES, Buffer, aligned, length_at_rest
from mmcache.tiers.reserve import reserve

_WRITE_BACK_BYTES = 8 << 20
_SYNC_FILE_RANGE_WRITE = 2


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that starts writing dirty pages and does not wait; Python has no name for it."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


_start_writing = _sync_file_range()


def new_number() -> int:
    """A segment number that no other process draws."""
    return int.from_bytes(os.urandom(8), "big")


def refusal(error: OSError) -> RefuseReason:
    """Why a put is refused when writing fails so."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return RefuseReason.DISK_FULL
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return RefuseReason.READ_ONLY
    return RefuseReason.TIER_DOWN


def locked(path: Path) -> int | None:
    """The descriptor of a segment whose writer is gone, locked by us; None when it is being written or is not there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None


def end_of_frames(fd: int, start: int) -> int:
    """Where the frames end that a writer appended from `start` on, visible or not. To cut a file below a frame that
    a process has mapped would kill that process (SIGBUS)."""
    size = os.fstat(fd).st_size
    while (length := length_at_rest(os.pread(fd, PRELUDE_BYTES, start))) and start + length <= size:
        start = aligned(start + length)
    return min(start, size)


class Segment:
    """The one that this process writes."""

    def __init__(self, path: Path, number: int) -> None:
        """Create the file, empty, and lock it. Raises `OSError`."""
        self.path, self.number = path, number
        self.allocated = self.used = self._started = 0
        while True:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            if os.fstat(self.fd).st_nlink:
                return
            os.close(self.fd)  # swept up by another process before it was locked

    def allocate(self, size: int) -> None:
        """Take `size` bytes from the file system now. Raises `OSError` when it has not got them."""
        reserve(self.fd, size)
        self.allocated = size

    def room(self, length: int) -> bool:
        """Whether a frame of `length` bytes fits."""
        return self.used + length <= self.allocated

    def append(self, parts: list[Buffer]) -> tuple[int, int]:
        """Write one frame; its offset and length. Raises `OSError`."""
        offset = self.used
        length = sum(memoryview(part).nbytes for part in parts)
        written = os.pwritev(self.fd, parts, offset)
        if written < length:  # a signal, a quota, or more than 2 GiB
            rest = memoryview(b"".join(bytes(part) for part in parts))[written:]
            while rest:
                done = os.pwrite(self.fd, rest, offset + length - len(rest))
                rest = rest[done:]
        self.used = aligned(offset + length)
        if _start_writing is not None and self.used - self._started >= _WRITE_BACK_BYTES:
            # The device works while the next frames are copied, so that a flush has only the rest to wait for.
            _start_writing(self.fd, self._started, self.used - self._started, _SYNC_FILE_RANGE_WRITE)
            self._started = self.used
        return offset, length

    def seal(self) -> int:
        """Give back what was not written; the bytes that stay."""
        os.ftruncate(self.fd, self.used)
        self.allocated = self.used
        return self.used

    def unlock(self) -> None:
        """Anyone may reclaim it now."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the descriptor (and with it the lock)."""
        os.close(self.fd)


class Mapping:
    """A segment, mapped for reading."""

    __slots__ = ("verified", "view")

    def __init__(self, path: Path) -> None:
        """Map the file. Raises `OSError` when it is gone, `CorruptFrameError` when it is empty."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.view = memoryview(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
        except ValueError as error:
            raise CorruptFrameError(f"{path.name} is empty") from error
        finally:
            os.close(fd)
        self.verified: set[int] = set()
        """Offsets of the frames whose checksum was found right through this mapping."""
