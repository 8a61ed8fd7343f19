"""`FileRecords`: one small file a record in the cache folder, for any number of processes of a machine.

A draft is written, made durable and renamed over the record, under a kernel lock that dies with its holder: a process
killed at any point leaves the old record or the new one. Readers take no lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmcache.forks import QuietLock
from mmcache.model.errors import TierError
from mmcache.rollout.state import MOST_BYTES

FOLDER = "rollouts"
"""In the cache folder."""
_ASK_SECONDS = 0.002
"""How often the lock is tried again."""


class FileRecords:
    """Records of the cache folder `root`. Nothing is opened between two calls."""

    look_every, waits = 0.05, False

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._turn = QuietLock()

    def read(self, record: str) -> bytes | None:
        """See `Records`."""
        try:
            # not to wait for somebody who writes to it, where it is a pipe
            descriptor = os.open(self._path(record), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TierError(f"cannot read {self._path(record)}: {error.strerror or error}") from error

    def swap(self, record: str, old: bytes | None, new: bytes, *, patience: float = 1.0, durable: bool = True) -> bool:
        """See `Records`."""
        path = self._path(record)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)  # never the cache folder itself: it may be gone on purpose
            with self._turn, self._locked(patience):
                if self.read(record) != old:
                    return False
                self._replace(path, new, durable)
        except OSError as error:
            raise TierError(f"cannot write {path}: {error.strerror or error}") from error
        return True

    def names(self) -> list[str]:
        """See `Records`."""
        found = (path.name.removesuffix(".json") for path in self._folder.glob("*.json"))
        return sorted(name for name in found if "." not in name)

    def _path(self, record: str) -> Path:
        return self._folder / f"{record}.json"

    def _replace(self, path: Path, new: bytes, durable: bool) -> None:
        draft = path.with_name(f".{path.name}.draft")  # one name, since only the holder of the lock writes it
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(draft, path)
        if durable:
            folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def _locked(self, patience: float) -> Iterator[None]:
        """Not longer than `patience`: who holds the lock may have been stopped."""
        ends = time.monotonic() + patience
        descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= ends:
                        raise TierError(f"another process is changing {self._folder}: try again") from error
                    time.sleep(_ASK_SECONDS)
            yield
        finally:
            os.close(descriptor)
