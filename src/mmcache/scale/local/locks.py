"""Kernel locks: who holds one cannot forget to give it back, for it goes with the process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmcache.model.errors import ScaleError

_POLL_SECONDS = 0.02


def taken(path: Path, patience: float = 0.0) -> int | None:
    """A descriptor that holds the lock until it, and all copies in children, are closed; None: another holds it.

    The file says who took it. patience: seconds to try; who only looks whether it is held (`is_held`) is in the way,
    for a moment. Raises `OSError`."""
    end = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(descriptor, path):  # and was not removed while we came
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
                continue
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def held_by_us(path: Path, patience: float, whose: str) -> Iterator[None]:
    """Hold it meanwhile. Raises `ScaleError` when another holds it for longer than `patience` seconds."""
    descriptor = taken(path, patience)
    if descriptor is None:
        raise ScaleError(f"{whose} is at work in {path.parent} for {patience:g} s already: try again when it is done")
    try:
        yield
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """The process that took it and still runs, where one does."""
    if not is_held(path):
        return None
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):  # it has been taken this moment
        return None
    return pid if has_open(pid, path) else None


def has_open(pid: int, path: Path) -> bool:
    """Whether this process has the file open: who took the pid after it has not."""
    try:
        wanted, folder = path.stat(), Path(f"/proc/{pid}/fd")
        return any(os.path.samestat(wanted, entry.stat()) for entry in _entries(folder))
    except OSError:
        return False


def _entries(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.exists():
            yield entry


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the file that is open is the one at `path`: it may have been removed, and be another's."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
