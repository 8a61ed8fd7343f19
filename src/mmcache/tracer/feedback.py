"""What is done with a hot key: the tracer sends marks to the traced process, which heats them in its cache.

The tracer has the rights, the process has the cache; between them is a socket of datagrams in the process's folder.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import threading
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
        self._temporary = tempfile.TemporaryDirectory(prefix="mmcache-") if folder is None else None
        place = Path(self._temporary.name) if self._temporary else folder
        assert place is not None
        self.path = place / f"{os.getpid()}.mmcache-marks"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self.path.unlink(missing_ok=True)  # of a process of this number, long gone
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
        except OSError as error:
            self._socket.close()
            raise TracerError(f"marks cannot be listened for at {self.path}: {error}") from error
        self._thread = threading.Thread(target=self._listen, name="mmcache-marks", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                raw, ancillary, _, _ = self._socket.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                return
            if not raw:  # `close` sends that
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
        if self.path.exists() and os.getpid() == self._owner:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.connect(str(self.path))
                own.send(b"")
            self._thread.join(timeout=10)
            self.path.unlink(missing_ok=True)
        self._socket.close()
        if self._temporary is not None and os.getpid() == self._owner:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _trusted(ancillary: Sequence[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            return _CREDENTIALS.unpack(data)[1] in (0, os.geteuid())
    return False


class Sender:
    """Sends marks to a traced process; one that does not keep up, or is gone, loses them."""

    def __init__(self, path: Path) -> None:
        """path: see `Trace.marks_path`. Raises `TracerError`."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.sent = self.lost = 0
        try:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)  # a socket's path has 107 bytes at most
            try:
                self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
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
