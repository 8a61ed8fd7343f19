"""What is done with a hot key: the tracer sends marks to the traced process, which heats them in its cache.

The tracer has the rights, the process has the cache; between them is a socket of datagrams in the process's folder.
"""

from __future__ import annotations

import itertools
import os
import socket
import stat
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from mmcache.model.errors import TracerError
from mmcache.model.key import Key
from mmcache.tracer.mark import Mark

if TYPE_CHECKING:
    from mmcache.cache import Cache

_MOST_BYTES = 256
_CREDENTIALS = struct.Struct("3i")
_NUMBERS = itertools.count()


class Hears(Protocol):
    """Who wants to know of hot keys, e.g. to have them on more machines."""

    def marked(self, mark: Mark) -> None:
        """This key has become hot. Called in a thread of ours; what it raises is dropped."""


class Marks:
    """Listens for the marks of `mmcache trace --mark`, and heats what they name: see `Answers.heat`.

    Costs nothing while no mark comes. Takes marks from root and from its own user only. A forked child does not
    listen.
    """

    def __init__(self, cache: Cache, hearers: Sequence[Hears] = (), *, folder: Path | None = None) -> None:
        """folder: where the socket is made, only its owner's; default: a new temporary one. Raises `TracerError`."""
        self._heat: Callable[[Sequence[Key]], object] = cache.answers.heat
        self._hearers = tuple(hearers)
        self.heard = 0
        """Marks taken."""
        self.refused = 0
        """Datagrams that were none, or another user's."""
        self._owner = os.getpid()
        try:
            place = (Path(tempfile.mkdtemp(prefix="mmcache-")) if folder is None else folder).absolute()
        except OSError as error:
            raise TracerError(f"there is no folder in which marks can be listened for: {error}") from error
        self.path = place / f"{os.getpid()}.{next(_NUMBERS)}.mmcache-marks"
        self._remove = weakref.finalize(self, _remove, self.path, folder is None, os.getpid())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self.path.unlink(missing_ok=True)  # of a process of this number, long gone
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
        except OSError as error:
            self._socket.close()
            self._remove()
            raise TracerError(f"marks cannot be listened for at {self.path}: {error}") from error
        self._thread = threading.Thread(target=self._listen, name="mmcache-marks", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                raw, ancillary, _, _ = self._socket.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                return
            if not raw and not ancillary:  # `close` was called; an empty datagram has a sender
                return
            mark = Mark.unpack(raw) if _trusted(ancillary) else None
            if mark is None:
                self.refused += 1
                continue
            self.heard += 1
            for tell in (lambda one: self._heat([one.key]), *(hearer.marked for hearer in self._hearers)):
                with suppress(Exception):  # it is only news; no hearer may stop the next
                    tell(mark)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        if os.getpid() == self._owner:  # a child's copy is the same socket
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes `_listen`, even where the file was swept away
            if threading.current_thread() is not self._thread:  # as where a hearer closes
                self._thread.join(timeout=10)
        self._remove()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _remove(path: Path, folder: bool, owner: int) -> None:
    """Also when the process ends; not when a child that it forked does."""
    if os.getpid() == owner:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            if folder:
                path.parent.rmdir()


def _trusted(ancillary: Sequence[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            return _CREDENTIALS.unpack(data)[1] in (0, os.geteuid())
    return False


class Sender:
    """Sends marks to a traced process; one that does not keep up, or is gone, loses them."""

    def __init__(self, path: Path, owner: int | None = None) -> None:
        """path: see `Trace.marks_paths`. owner: the user whose it must be: root sends here what one process reads, and
        that process could have laid another's socket there. Raises `TracerError`."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.sent = self.lost = 0
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW)  # a socket's path has 107 bytes at most
            try:
                found = os.fstat(place)
                if not stat.S_ISSOCK(found.st_mode) or owner not in (None, found.st_uid):
                    raise PermissionError("it is no socket of that process's user")
                self._socket.connect(f"/proc/self/fd/{place}")
            finally:
                os.close(place)
        except OSError as error:
            self._socket.close()
            raise TracerError(f"the process's socket for marks, {path}, cannot be reached: {error}") from error

    def send(self, mark: Mark) -> None:
        """One mark; never raises and never waits."""
        try:
            self._socket.send(mark.pack())
            self.sent += 1
        except OSError:
            self.lost += 1

    def close(self) -> None:
        """Send no more."""
        self._socket.close()
