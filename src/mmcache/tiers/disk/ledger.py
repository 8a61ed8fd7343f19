"""The index's bookkeeping inside one write transaction: blocks, where they lie, and what each segment is worth.

Tables: `frames` key → record; `places` segment ‖ offset → key ‖ generation of last use ‖ owner; `segments` number →
`Usage`. A generation is the count of segments ever begun: the cache's own time, which passes only as it fills.

An owner is a digest of a tenant's name. For quotas, `meta` holds `held` ‖ owner → bytes, and `own` ‖ owner ‖ generation
of last use ‖ place → nothing: a tenant's blocks, the one unused for longest first. A process of a version without
owners writes places without one, and counts nothing: `adopt` counts anew.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mmcache.model.key import Key
from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.record import OWNER_BYTES, Record, owner_in

_NUMBER = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_USED = struct.Struct("<I")
_USAGE = struct.Struct("<QQIII?")
_KEY_BYTES = 48
_OWNER = _KEY_BYTES + _USED.size
_GENERATION = b"generation"
_HELD, _OWN = b"held", b"own"
_COUNTED = b"counted"
_BYTES = struct.Struct("<Q")


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
    owner: bytes
    """Digest of its tenant; empty where it has none."""


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
        self._change: Counter[bytes] = Counter()
        """Owner → bytes that it holds more, or less, than `meta` says."""

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
                    used, owner = _USED.unpack_from(entry, _KEY_BYTES)[0], entry[_OWNER:]
                    found.append(Placed(key, raw, record, used, owner))
            first = chunk[-1][0] + b"\0"
        return found

    def remove(self, number: int) -> list[Placed]:
        """Forget a segment with all its frames, which are returned."""
        placed = self.placed(number)
        for frame in placed:
            self._txn.delete(frame.key, db=self._tables.frames)
            self._leave(frame.record)
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
        owner = owner_in(record.names)
        self._note(_PLACE.pack(record.segment, record.offset), key + _USED.pack(self.generation) + owner)
        self._change[owner] += record.length
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
        self._leave(record)
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
        place = _PLACE.pack(record.segment, record.offset)
        old = self._txn.get(place, db=self._tables.places) or b""
        entry = key + _USED.pack(self.generation) + old[_OWNER:]
        if old != entry:
            self._forget(place, old)
            self._note(place, entry)
            if usage := self.usage(record.segment):
                self._usages[record.segment] = usage._replace(used=self.generation)

    # owners

    def _note(self, place: bytes, entry: bytes) -> None:
        self._txn.put(place, entry, db=self._tables.places)
        if len(entry) == _OWNER + OWNER_BYTES:
            self._txn.put(_own(place, entry), b"", db=self._tables.meta)

    def _forget(self, place: bytes, entry: bytes) -> None:
        self._txn.delete(place, db=self._tables.places)
        if len(entry) == _OWNER + OWNER_BYTES:
            self._txn.delete(_own(place, entry), db=self._tables.meta)

    def _leave(self, record: Record) -> None:
        """A block is gone from its place, and from what its owner holds."""
        place = _PLACE.pack(record.segment, record.offset)
        entry = self._txn.get(place, db=self._tables.places)
        if entry is not None:
            self._forget(place, entry)
            self._change[entry[_OWNER:]] -= record.length

    def held(self, owner: bytes) -> int:
        """Bytes of a tenant's live frames."""
        raw = self._txn.get(_HELD + owner, db=self._tables.meta)
        return max(0, (_BYTES.unpack(raw)[0] if raw else 0) + self._change[owner])

    def owners(self) -> dict[bytes, int]:
        """What each tenant held when the transaction began."""
        found: dict[bytes, int] = {}
        first = _HELD
        while chunk := self._tables.range(self._tables.meta, first):
            for name, raw in chunk:
                if not name.startswith(_HELD):
                    return found
                found[name[len(_HELD) :]] = _BYTES.unpack(raw)[0]
            first = chunk[-1][0] + b"\0"
        return found

    def trim(self, owner: bytes, limit: int) -> list[tuple[Key, int]]:
        """Drop a tenant's blocks, the one unused for longest first, until they take `limit` bytes at most: keys and
        bytes."""
        gone = self._trim(owner, limit)
        if self.held(owner) > limit:  # without a block left: a process of an older version dropped some
            self._count()
            gone += self._trim(owner, limit)
        return gone

    def adopt(self) -> None:
        """Once a folder: count the blocks that were stored before there were owners. Reads the whole index then."""
        if self._txn.get(_COUNTED, db=self._tables.meta) is None:
            self._count()
            self._txn.put(_COUNTED, b"", db=self._tables.meta)

    def _count(self) -> None:
        """All owners anew, from the frames that there are."""
        for prefix in (_HELD, _OWN):
            while (chunk := self._tables.range(self._tables.meta, prefix)) and chunk[0][0].startswith(prefix):
                for name, _ in chunk:
                    if name.startswith(prefix):
                        self._txn.delete(name, db=self._tables.meta)
        self._change.clear()
        first = b""
        while chunk := self._tables.range(self._tables.places, first):
            for place, entry in chunk:
                raw = self._txn.get(entry[:_KEY_BYTES], db=self._tables.frames)
                record = Record.decode(raw) if raw is not None else None
                if record is not None and _PLACE.pack(record.segment, record.offset) == place:
                    owner = owner_in(record.names)
                    self._note(place, entry[:_OWNER] + owner)
                    self._change[owner] += record.length
            first = chunk[-1][0] + b"\0"

    def _trim(self, owner: bytes, limit: int) -> list[tuple[Key, int]]:
        gone: list[tuple[Key, int]] = []
        prefix = _OWN + owner
        while self.held(owner) > limit and (chunk := self._tables.range(self._tables.meta, prefix, 16)):
            for name, _ in chunk:
                if not name.startswith(prefix):
                    return gone
                if self.held(owner) <= limit:
                    break
                place = name[-_PLACE.size :]
                entry = self._txn.get(place, db=self._tables.places) or b""
                record = self.drop(entry[:_KEY_BYTES]) if entry else None
                if record is not None:
                    gone.append((Key.from_bytes(entry[:_KEY_BYTES]), record.length))
                self._txn.delete(name, db=self._tables.meta)  # even where it belonged to nothing
        return gone

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
        for owner in filter(None, self._change):
            if held := self.held(owner):
                self._txn.put(_HELD + owner, _BYTES.pack(held), db=self._tables.meta)
            else:
                self._txn.delete(_HELD + owner, db=self._tables.meta)
        self._change.clear()
        return emptied


def _own(place: bytes, entry: bytes) -> bytes:
    (used,) = _USED.unpack_from(entry, _KEY_BYTES)
    return _OWN + entry[_OWNER:] + used.to_bytes(4, "big") + place  # type: ignore[no-any-return]


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
    held: Counter[bytes] = Counter()
    for number, usage in usages(tables):
        placed = Ledger(tables).placed(number)
        held.update({frame.owner: 0 for frame in placed})
        for frame in placed:
            held[frame.owner] += frame.record.length
        live = sum(frame.record.length for frame in placed)
        if (len(placed), live) != (usage.blocks, usage.live):
            counted = f"{usage.blocks} blocks, {usage.live} bytes"
            found.append(f"segment {number:016x} counts {counted}; it has {len(placed)}, {live}")
    frames, places = (tables.txn.stat(table)["entries"] for table in (tables.frames, tables.places))
    if frames != places:
        found.append(f"{frames} blocks have {places} places")
    noted = Ledger(tables).owners()
    wrong = [owner for owner in {*held, *noted} - {b""} if held[owner] != noted.get(owner, 0)]
    found += [f"tenant {owner.hex()} counts {noted.get(owner, 0)} bytes; it has {held[owner]}" for owner in wrong]
    return found
