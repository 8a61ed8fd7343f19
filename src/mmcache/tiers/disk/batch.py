"""What one index transaction of a writer does: new blocks, copies, recency, what has ended, and memo entries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from mmcache.model.frame import Buffer
from mmcache.model.key import Key
from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.ledger import Ledger
from mmcache.tiers.disk.memo import IndexMap
from mmcache.tiers.disk.record import Record

Outdated = Callable[[], Collection[Key] | None]
"""Keys that were invalidated after their frames were handed over; None = perhaps all."""


class Pending(NamedTuple):
    """A frame that is written and not yet in the index."""

    key: Key
    record: Record
    parts: list[Buffer]
    replaces: bytes | None
    """The index entry of the frame that this is a copy of, None for a new block."""


class Batch(NamedTuple):
    """Taken from the writer before the transaction, so that it can run again."""

    pending: list[Pending]
    touched: list[Key]
    ended: dict[Key, bytes]
    waiting: list[tuple[IndexMap, list[tuple[bytes, bytes]]]]

    def apply(self, tables: Tables, unlink: Callable[[Iterable[int]], None], outdated: Outdated) -> list[Key]:
        """Do it; the keys that ended. Raises `SegmentGoneError`.

        `outdated` is asked inside the transaction, which excludes all other writers: who invalidates first tells, and
        then drops, so an outdated block is either refused here or dropped there.
        """
        ledger, old = Ledger(tables), outdated() if self.pending else ()
        for entry in self.pending:
            if entry.replaces is None and (old is None or entry.key in old):
                ledger.drop(entry.key)
            elif entry.replaces is None:
                ledger.put(entry.key, entry.record)
            else:
                ledger.move(entry.key, entry.replaces, entry.record)
        for key in self.touched:
            ledger.touch(key)
        gone = [key for key, raw in self.ended.items() if ledger.drop(key, only=raw)]
        for table, entries in self.waiting:
            table.write(tables, entries)
        unlink(ledger.save())
        return gone
