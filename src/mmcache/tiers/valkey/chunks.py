"""A large block is kept in pieces, so that no command holds a node up for long. Pure: what to send, what came."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmcache.model.errors import CorruptFrameError, FormatVersionError
from mmcache.model.event import MissReason
from mmcache.model.frame import PRELUDE_BYTES, Buffer, Frame, length_at_rest
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline
from mmcache.tiers.valkey.names import chunk_names
from mmcache.tiers.valkey.record import MOST_CHUNKS, NO_CHUNKS, Record
from mmcache.tiers.valkey.words import Request

STAGED_MS = 60_000
"""What a writer that died half way leaves behind is gone after so long."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a payload is cut; no pieces = it stays with its head."""

    chunk_id: bytes = NO_CHUNKS
    count: int = 0
    size: int = 0
    """Bytes of each piece but the last."""

    @staticmethod
    def of(payload_bytes: int, chunk_bytes: int) -> Cut:
        """Into pieces of `chunk_bytes`, larger only where there would be too many. A new id each time."""
        size = max(chunk_bytes, -(-payload_bytes // MOST_CHUNKS))
        return Cut(draw_id(), -(-payload_bytes // size), size)

    def pieces(self, payload: memoryview) -> list[memoryview]:
        """Views, no copies."""
        return [payload[start : start + self.size] for start in range(0, len(payload), self.size)]


def draw_id() -> bytes:
    """For the pieces of one value."""
    return secrets.token_hex(8).encode()


@dataclass(frozen=True, slots=True)
class Large:
    """A head that was read, whose payload is still to be fetched."""

    key: Key
    head: bytes
    """Its name."""
    prefix: Buffer
    """The frame's."""
    cut: Cut
    total: int
    """Bytes of the whole frame."""
    deadline: Deadline

    @staticmethod
    def of(key: Key, head: bytes, raw: Buffer, record: Record, deadline: Deadline) -> Large:
        """Raises `CorruptFrameError` where the head cannot be that of its pieces."""
        prefix = memoryview(raw)[record.length :]
        total = length_at_rest(prefix[:PRELUDE_BYTES])
        if total is None:
            raise CorruptFrameError("not a frame: wrong magic")
        payload = total - len(prefix)
        if payload <= 0 or -(-payload // record.chunk_bytes) != record.chunks:
            raise CorruptFrameError("a stored head and its pieces do not fit")
        return Large(key, head, prefix, Cut(record.chunk_id, record.chunks, record.chunk_bytes), total, deadline)

    def requests(self, replica: bool) -> list[Request]:
        """What to ask for the pieces. Whole, since servers send that without a copy; nobody else knows their names."""
        names = chunk_names(self.head, self.cut.chunk_id, self.cut.count)
        return [Request(name, ("GET", name), replica) for name in names]

    def joined(self, pieces: Sequence[Any]) -> Frame | MissReason:
        """The frame, its payload in one piece of memory and checked. Raises `CorruptFrameError`."""
        if not all(pieces):
            return MissReason.ABSENT
        if not all(isinstance(piece, bytes | memoryview) for piece in pieces):
            return MissReason.CORRUPT
        whole = b"".join([self.prefix, *pieces])
        if len(whole) != self.total:
            raise CorruptFrameError("the pieces of a stored value are not as long as its head says")
        frame = parsed(whole, self.key)
        if not frame.intact():
            raise CorruptFrameError("the payload of a stored value fails its checksum")
        return frame


def parsed(raw: Buffer, key: Key) -> Frame:
    """A frame of that key. Raises `CorruptFrameError`, `FormatVersionError`."""
    frame = Frame.parse(raw)
    if frame.header.key != key:
        raise CorruptFrameError("another key's frame is stored here")
    return frame


UNREADABLE = (CorruptFrameError, FormatVersionError)
