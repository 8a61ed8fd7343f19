"""`Board`: how far the writer has come, for readers in other processes: one number in a mapped file."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_FORMAT = struct.Struct("=q")


class Board:
    """One 64-bit number that one process sets and others read; 0 at first."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_FORMAT.pack(0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORMAT.size)

    @property
    def committed(self) -> int:
        """The last row that is committed in its new version."""
        return int(_FORMAT.unpack_from(self._map)[0])

    @committed.setter
    def committed(self, row: int) -> None:
        _FORMAT.pack_into(self._map, 0, row)
