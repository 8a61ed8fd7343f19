"""`Records`: where the state of rollouts is kept. Small records by name, replaced by compare-and-set."""

from __future__ import annotations

from typing import Protocol

from mmcache.forks import Lock


class Records(Protocol):
    """A record's name is a rollout's, or that and a dot and a word. Safe under threads and forks.

    Whatever cannot be reached or written raises `TierError`.
    """

    look_every: float
    """Seconds between two reads of a process."""
    waits: bool
    """Whether a read may wait for somebody else: then one caller reads and the others go on with what is known. Else
    everybody who finds it due reads, so that nobody who begins `look_every` after a change misses it."""

    def read(self, record: str) -> bytes | None:
        """The record; None where there is none. Whole: the old one or the new one."""

    def swap(self, record: str, old: bytes | None, new: bytes, *, patience: float = 1.0, durable: bool = True) -> bool:
        """Replace the record by `new` if it is `old` (None = absent); whether it was. Seen by all at once.

        patience: seconds to wait for others that are at it. durable: the new one survives a power cut.
        """

    def names(self) -> list[str]:
        """Rollouts that have a record, sorted."""


class MemoryRecords:
    """Of one process: for a cache that has neither a folder nor a server."""

    look_every, waits = 0.0, False

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}
        self._lock = Lock()

    def read(self, record: str) -> bytes | None:
        """See `Records`."""
        return self._held.get(record)

    def swap(self, record: str, old: bytes | None, new: bytes, *, patience: float = 1.0, durable: bool = True) -> bool:
        """See `Records`."""
        with self._lock:
            if self._held.get(record) != old:
                return False
            self._held[record] = new
            return True

    def names(self) -> list[str]:
        """See `Records`."""
        return sorted(name for name in self._held if "." not in name)
