"""The index's bookkeeping inside one write transaction: blocks, where they lie, and what each segment is worth.

Tables: `frames` key → record; `places` segment ‖ offset → key ‖ generation of last use; `segments` number → `Usage`.
A generation is the count of segments ever begun: the cache's own time, which passes only as it fills.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mmcache.model.key import Key
from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.record import Record

_NUMBER = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_USED = struct.Struct("<I")
_USAGE = struct.Struct("<QQIII?")
_KEY_BYTES = 48
_GENERATION = b"generation"


class Usage(NamedTuple):
    """What is known of a segment. All processes' bytes are counted here."""

    allocated: int
    """Bytes that the file takes."""
    live: int
    """Bytes of frames that the index still points to."""
    blocks: int
    born: int
    used: int
    """Generations of its begin and of its last use."""
    sealed: bool
    """Cut to what was written; else a process is writing it, or has died."""


class Placed(NamedTuple):
    """A live frame of a segment."""

    key: Key
    raw: bytes
    record: Record
    used: int
    """Generation of its last use."""


class SegmentGoneError(Exception):
    """Another process reclaimed or erased the segment that frames were just written to: write them again."""


class Ledger:
    """Changes to the three tables that keep them consistent."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._txn = tables, tables.txn
        self._usages: dict[int, Usage] = {}
        raw = self._txn.get(_GENERATION, db=tables.meta)
        self.generation = _USED.unpack(raw)[0] if raw else 0
        self._emptied: list[int] = []

    # segments

    def begin(self, number: int, allocated: int) -> None:
        """A new segment."""
        self.generation += 1
        self._txn.put(_GENERATION, _USED.pack(self.generation), db=self._tables.meta)
        self._usages[number] = Usage(allocated, 0, 0, self.generation, self.generation, False)

    def usage(self, number: int) -> Usage | None:
        """None when there is no such segment (any more)."""
        if number not in self._usages:
            raw = self._txn.get(_NUMBER.pack(number), db=self._tables.segments)
            if raw is None:
                return None
            self._usages[number] = Usage(*_USAGE.unpack(raw))
        return self._usages[number]

    def segments(self) -> dict[int, Usage]:
        """All of them."""
        found = {
            _NUMBER.unpack(key)[0]: Usage(*_USAGE.unpack(raw))
            for key, raw in self._txn.cursor(db=self._tables.segments)
        }
        return found | self._usages

    def seal(self, number: int, allocated: int) -> None:
        """Its file now has `allocated` bytes and gets no more."""
        if usage := self.usage(number):
            self._usages[number] = usage._replace(allocated=allocated, sealed=True)
            self._maybe_empty(number)

    def placed(self, number: int) -> list[Placed]:
        """The live frames of a segment, by offset."""
        found: list[Placed] = []
        first = _PLACE.pack(number, 0)
        while chunk := self._tables.range(self._tables.places, first):
            for place, entry in chunk:
                if place[:8] != first[:8]:
                    return found
                key = Key.from_bytes(entry[:_KEY_BYTES])
                raw = self._txn.get(key, db=self._tables.frames)
                record = Record.decode(raw) if raw is not None else None
                if raw is not None and record is not None and _PLACE.pack(record.segment, record.offset) == place:
                    found.append(Placed(key, raw, record, _USED.unpack_from(entry, _KEY_BYTES)[0]))
            first = chunk[-1][0] + b"\0"
        return found

    def remove(self, number: int) -> list[Placed]:
        """Forget a segment with all its frames, which are returned."""
        placed = self.placed(number)
        for frame in placed:
            self._txn.delete(frame.key, db=self._tables.frames)
            self._txn.delete(_PLACE.pack(number, frame.record.offset), db=self._tables.places)
        self._txn.delete(_NUMBER.pack(number), db=self._tables.segments)
        self._usages.pop(number, None)
        return placed

    # blocks

    def put(self, key: Key, record: Record) -> None:
        """Point `key` to a frame. Raises `SegmentGoneError`."""
        usage = self.usage(record.segment)
        if usage is None:
            raise SegmentGoneError
        self.drop(key)
        self._txn.put(key, record.encode(), db=self._tables.frames)
        place = _PLACE.pack(record.segment, record.offset)
        self._txn.put(place, key + _USED.pack(self.generation), db=self._tables.places)
        usage = self._usages[record.segment]
        self._usages[record.segment] = usage._replace(live=usage.live + record.length, blocks=usage.blocks + 1)

    def move(self, key: Key, only: bytes, record: Record) -> None:
        """Point `key` to a copy of its frame, unless it was dropped or replaced since `only` was read."""
        if self._txn.get(key, db=self._tables.frames) == only:
            self.put(key, record)

    def doom(self, number: int, evicted: list[Placed]) -> None:
        """Its file is about to go; the frames not in `evicted` are being copied. Until they are, their entries stay, so
        that a drop in between is not lost."""
        for frame in evicted:
            self.drop(frame.key)
        if usage := self.usage(number):
            self._usages[number] = usage._replace(allocated=0, sealed=False)

    def drop(self, key: bytes, only: bytes | None = None) -> Record | None:
        """Forget a key (if its entry still is `only`); what it pointed to."""
        raw = self._txn.get(key, db=self._tables.frames)
        if raw is None or (only is not None and raw != only):
            return None
        record = Record.decode(raw)
        self._txn.delete(key, db=self._tables.frames)
        self._txn.delete(_PLACE.pack(record.segment, record.offset), db=self._tables.places)
        if usage := self.usage(record.segment):
            live, blocks = max(0, usage.live - record.length), max(0, usage.blocks - 1)
            self._usages[record.segment] = usage._replace(live=live, blocks=blocks)
            self._maybe_empty(record.segment)
        return record

    def touch(self, key: bytes) -> None:
        """A block was used in this generation."""
        raw = self._txn.get(key, db=self._tables.frames)
        if raw is None:
            return
        record = Record.decode(raw)
        place, entry = _PLACE.pack(record.segment, record.offset), key + _USED.pack(self.generation)
        if self._txn.get(place, db=self._tables.places) != entry:
            self._txn.put(place, entry, db=self._tables.places)
            if usage := self.usage(record.segment):
                self._usages[record.segment] = usage._replace(used=self.generation)

    def _maybe_empty(self, number: int) -> None:
        usage = self._usages[number]
        if usage.sealed and usage.blocks == 0:
            self._emptied.append(number)

    def save(self) -> list[int]:
        """Write the segments' usage; the last call of a transaction. Sealed segments without a live frame left are
        forgotten and returned: their files can go."""
        emptied = [number for number in dict.fromkeys(self._emptied) if self._usages[number].blocks == 0]
        for number in emptied:
            self._txn.delete(_NUMBER.pack(number), db=self._tables.segments)
            del self._usages[number]
        for number, usage in self._usages.items():
            self._txn.put(_NUMBER.pack(number), _USAGE.pack(*usage), db=self._tables.segments)
        return emptied


def usages(tables: Tables) -> Iterator[tuple[int, Usage]]:
    """The segments as last committed."""
    for key, raw in tables.txn.cursor(db=tables.segments):
        yield _NUMBER.unpack(key)[0], Usage(*_USAGE.unpack(raw))


def place_of(entry: tuple[bytes, bytes]) -> tuple[int, int, bytes]:
    """Segment, offset and key of a line of the `places` table."""
    return (*_PLACE.unpack(entry[0]), entry[1][:_KEY_BYTES])


def placed_in(number: int) -> Callable[[Tables], list[Placed]]:
    """For `Index.read`: the live frames of one segment."""
    return lambda tables: Ledger(tables).placed(number)


def removing(number: int, known: set[bytes]) -> Callable[[Tables], list[Placed] | None]:
    """For `Index.update`: remove a segment, unless it has frames whose entries are not in `known` (then None)."""

    def change(tables: Tables) -> list[Placed] | None:
        ledger = Ledger(tables)
        if any(frame.raw not in known for frame in ledger.placed(number)):
            return None
        removed = ledger.remove(number)
        ledger.save()
        return removed

    return change


def forgetting(numbers: Iterable[int]) -> Callable[[Tables], None]:
    """For `Index.update`: remove segments, and what may still point into them."""

    def change(tables: Tables) -> None:
        ledger = Ledger(tables)
        for number in numbers:
            ledger.remove(number)
        ledger.save()

    return change


def totals(tables: Tables) -> list[str]:
    """Where the three tables disagree with each other."""
    found = []
    for number, usage in usages(tables):
        placed = Ledger(tables).placed(number)
        live = sum(frame.record.length for frame in placed)
        if (len(placed), live) != (usage.blocks, usage.live):
            counted = f"{usage.blocks} blocks, {usage.live} bytes"
            found.append(f"segment {number:016x} counts {counted}; it has {len(placed)}, {live}")
    frames, places = (tables.txn.stat(table)["entries"] for table in (tables.frames, tables.places))
    if frames != places:
        found.append(f"{frames} blocks have {places} places")
    return found
