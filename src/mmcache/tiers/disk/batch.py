"""What one index transaction of a writer does: new blocks, copies, recency, what has ended, and memo entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from mmcache.model.frame import Buffer
from mmcache.model.key import Key
from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import Ledger, Placed
from mmcache.tiers.disk.memo import IndexMap
from mmcache.tiers.disk.record import Record, owner_in

Outdated = Callable[[], Collection[Key] | None]
"""Keys that were invalidated after their frames were handed over; None = perhaps all."""


class Pending(NamedTuple):
    """A frame that is written and not yet in the index."""

    key: Key
    record: Record
    parts: list[Buffer]
    replaces: bytes | None
    """The index entry of the frame that this is a copy of, None for a new block."""


def copy_of(layout: Layout, frame: Placed) -> Pending | None:
    """A frame's bytes in memory, None when they are gone. They are not verified here: who reads the copy does."""
    record = frame.record
    try:
        with layout.segment(record.segment).open("rb") as file:
            return Pending(frame.key, record, [os.pread(file.fileno(), record.length, record.offset)], frame.raw)
    except FileNotFoundError:
        return None


class Applied(NamedTuple):
    """What a batch did beside what it was asked for."""

    ended: list[Key]
    evicted: list[tuple[Key, int]]
    """To keep a tenant within its quota: keys and bytes."""


class Batch(NamedTuple):
    """Taken from the writer before the transaction, so that it can run again."""

    pending: list[Pending]
    touched: list[Key]
    ended: dict[Key, bytes]
    waiting: list[tuple[IndexMap, list[tuple[bytes, bytes]]]]

    def apply(
        self,
        tables: Tables,
        unlink: Callable[[Iterable[int]], None],
        outdated: Outdated,
        quotas: Mapping[bytes, int],
    ) -> Applied:
        """Do it. Raises `SegmentGoneError`.

        `outdated` is asked inside the transaction, which excludes all other writers: who invalidates first tells, and
        then drops, so an outdated block is either refused here or dropped there. For the same reason no tenant (by
        owner) ever holds more than its quota of bytes in the index, whatever other processes write.
        """
        ledger, old = Ledger(tables), outdated() if self.pending else ()
        evicted: list[tuple[Key, int]] = []
        if quotas:
            ledger.adopt()
        for key in self.touched:  # first: what was used a moment ago is not what a full quota costs
            ledger.touch(key)
        for entry in self.pending:
            if entry.replaces is None and (old is None or entry.key in old):
                ledger.drop(entry.key)
            elif entry.replaces is None:
                if quotas and (quota := quotas.get(owner := owner_in(entry.record.names))) is not None:
                    ledger.drop(entry.key)
                    evicted += ledger.trim(owner, quota - entry.record.length)
                ledger.put(entry.key, entry.record)
            else:
                ledger.move(entry.key, entry.replaces, entry.record)
        gone = [key for key, raw in self.ended.items() if ledger.drop(key, only=raw)]
        for table, entries in self.waiting:
            table.write(tables, entries)
        unlink(ledger.save())
        return Applied(gone, evicted)
