"""Verifying and erasing: the two operations that look at everything."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mmcache.model.clock import Clock
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError
from mmcache.model.frame import Frame, aligned
from mmcache.model.key import PART_BYTES as DIGEST_BYTES
from mmcache.model.key import Key
from mmcache.tiers.base import Held
from mmcache.tiers.disk.index import Index
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import Placed, place_of, placed_in, totals, usages
from mmcache.tiers.disk.record import Record
from mmcache.tiers.disk.segments import Mapping
from mmcache.tiers.disk.writing import Writer


@dataclass(frozen=True)
class VerifyReport:
    """What `DiskTier.verify` found."""

    blocks: int = 0
    bytes: int = 0
    """Frames read, with their headers."""
    segments: int = 0
    missing: int = 0
    """Blocks whose segment file is gone: misses that the next writer sweeps up."""
    corrupt: tuple[tuple[Key, str], ...] = ()
    """Blocks that would be a miss, and why."""
    inconsistent: tuple[str, ...] = ()
    """Where the index disagrees with itself or with the files."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.corrupt and not self.inconsistent


class EraseReport(NamedTuple):
    """What `DiskTier.erase` removed."""

    blocks: int
    bytes: int
    """Frames, with their headers."""


def _problem(key: bytes, record: Record, mapping: Mapping) -> str | None:
    end = record.offset + record.length
    if end > mapping.view.nbytes:
        return "a frame lies outside its segment"
    try:
        frame = Frame.parse(mapping.view[record.offset : end])
    except (CorruptFrameError, FormatVersionError) as error:
        return str(error)
    if frame.header.key != key:
        return "the index points to another key's frame"
    return None if frame.intact() else "a payload fails its checksum"


def verify(index: Index, layout: Layout, progress: Callable[[str, int, int], None] | None) -> VerifyReport:
    """Tolerates concurrent change: what differs is looked at again before it counts."""
    started = time.perf_counter()
    total = index.read(lambda tables: tables.txn.stat(tables.frames)["entries"])
    corrupt: list[tuple[Key, str]] = []
    inconsistent: list[str] = []
    blocks = size = 0
    # By place, so that a segment is mapped once and read from front to back.
    number, mapping, missing, unreadable = -1, None, 0, ""
    for entry in index.entries(lambda tables: tables.places):
        try:
            segment, offset, raw_key = place_of(entry)
            key = Key.from_bytes(raw_key)
        except (struct.error, InvalidInputError):
            inconsistent.append("a place of a segment is not one that a writer notes")
            continue
        raw = index.lookup([key])[0]
        try:
            record = Record.decode(raw) if raw is not None else None
        except CorruptFrameError as error:
            corrupt.append((key, str(error)))
            continue
        if raw is None or record is None or (record.segment, record.offset) != (segment, offset):
            if index.read(lambda tables, entry=entry: tables.txn.get(entry[0], db=tables.places)) == entry[1]:  # type: ignore[misc]
                inconsistent.append(f"a place of segment {segment:016x} is not its block's")
            continue
        if segment != number:
            number, mapping = segment, None
            try:
                mapping = Mapping(layout.segment(segment))
            except FileNotFoundError:
                unreadable = ""
            except (OSError, CorruptFrameError) as error:
                unreadable = str(error)
        problem = unreadable if mapping is None else _problem(key, record, mapping)
        if problem is not None and index.lookup([key])[0] == raw:
            if problem:
                corrupt.append((key, problem))
            else:
                missing += 1
        blocks, size = blocks + 1, size + record.length
        if progress is not None:
            progress("blocks", min(blocks, total), total)

    inconsistent += index.read(totals)
    segments = len(index.read(lambda tables: dict(usages(tables))))
    seconds = time.perf_counter() - started
    return VerifyReport(blocks, size, segments, missing, tuple(corrupt), tuple(inconsistent), seconds)


def _parts(text: bytes) -> Iterator[bytes]:
    """What may be a digest in a memo's key or value: they hold whole ones from either end (a film holds many)."""
    for first in {0, len(text) % DIGEST_BYTES}:
        yield from (text[at : at + DIGEST_BYTES] for at in range(first, len(text), DIGEST_BYTES))


def erase(index: Index, layout: Layout, writer: Writer, clock: Clock, match: Callable[[Held], bool]) -> EraseReport:
    """Segments with a matching frame are copied without it and unlinked; then the index is written anew, since LMDB
    keeps freed pages. So are segments with dead frames in them: a dropped block of the same owner leaves bytes, too;
    and damaged or older files that were set aside are deleted."""
    writer.start()
    writer.flush()

    def matches(placed: Placed) -> bool:
        try:
            return match(placed.record.held(placed.key, clock))
        except CorruptFrameError:  # nobody knows whose it is: it must not outlive its owner's order
            return True

    touched: list[int] = []
    for number, usage in index.read(lambda tables: list(usages(tables))):
        placed = index.read(placed_in(number))
        dead = not usage.sealed or sum(aligned(frame.record.length) for frame in placed) < usage.allocated
        if dead or any(matches(frame) for frame in placed):
            touched.append(number)
    gone = writer.move_out(touched, matches)
    writer.flush()
    digests = {frame.key.digest for frame in gone}
    index.rebuild(lambda key, value: digests.isdisjoint((*_parts(key), *_parts(value))))
    layout.remove_set_aside()
    layout.sync()
    return EraseReport(len(gone), sum(frame.record.length for frame in gone))
