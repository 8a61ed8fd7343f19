"""A value as it rests on the server: a head that is checked by itself, then the frame.

Layout (little endian): magic, version, length of the head (a multiple of 64), xxh3-64 of what follows in it; machine
and deadline in that machine's own time (see `clocks`); time of creation; where the payload is; length, msgpack of
tenant, namespace, model, modality.

A small frame follows whole. Of a large one only its prefix follows; its payload is in pieces, under an id that is
drawn anew for each value, and the head tells the id (16 hex digits), how many (8 hex digits: scripts read them) and
how long each but the last is.
"""

from __future__ import annotations

import math
import struct

import msgspec
import xxhash

from mmcache.model.errors import CorruptFrameError, FormatVersionError
from mmcache.model.frame import Buffer, FrameHeader, aligned
from mmcache.tiers.base import Deadline

MAGIC = b"MMCV"
VERSION = 2
MACHINE_BYTES = 8
LONGEST_HEAD = 0xFFC0
MOST_CHUNKS = 4096
"""Of one block: as many names as a script takes at once, with room to spare."""
NO_CHUNKS = b"0" * 16
_FIXED = struct.Struct("<4sHHQ")
_BODY = struct.Struct("<8sdd16s8sIH")
_BODY_AT = _FIXED.size
_NAMES_AT = _FIXED.size + _BODY.size
CREATED_AT = _BODY_AT + struct.calcsize("<8sd")
"""Where the time of creation is: 8 bytes, see `when`."""
_decode_names = msgspec.msgpack.Decoder(tuple[str, str, str, str]).decode


class Record(msgspec.Struct, frozen=True):
    """The head of a stored value."""

    machine: bytes
    """8 bytes; whose own time `until` is in."""
    until: Deadline
    """Seconds; None = never."""
    created: float
    """Unix seconds."""
    chunk_id: bytes = NO_CHUNKS
    chunks: int = 0
    """How many pieces the payload is in; 0 = it follows the frame's prefix."""
    chunk_bytes: int = 0
    length: int = 0
    """Bytes of the head; what follows is the frame, or its prefix."""

    def encode(self, header: FrameHeader) -> bytes | None:
        """None when the names are too long for a head."""
        until = math.inf if self.until is None else self.until
        names = msgspec.msgpack.encode((header.tenant, header.namespace, header.model, header.modality))
        length = aligned(_NAMES_AT + len(names))
        if length > LONGEST_HEAD:
            return None
        count = b"%08x" % self.chunks
        body = _BODY.pack(self.machine, until, self.created, self.chunk_id, count, self.chunk_bytes, len(names)) + names
        body = body.ljust(length - _BODY_AT, b"\0")
        return _FIXED.pack(MAGIC, VERSION, length, xxhash.xxh3_64_intdigest(body)) + body

    @staticmethod
    def decode(raw: Buffer) -> Record:
        """Read the head that `raw` begins with. Raises `CorruptFrameError`, `FormatVersionError`."""
        if len(raw) < _FIXED.size:
            raise CorruptFrameError("a stored value is cut off")
        magic, version, length, checksum = _FIXED.unpack_from(raw)
        if magic != MAGIC:
            raise CorruptFrameError("not a stored value of mmcache: wrong magic")
        if version > VERSION:
            raise FormatVersionError(f"stored format {version} is newer than {VERSION}; upgrade mmcache")
        if version < VERSION or not _NAMES_AT < length <= len(raw):
            raise CorruptFrameError("a stored head is cut off, or of a version that was never stored so")
        if xxhash.xxh3_64_intdigest(raw[_BODY_AT:length]) != checksum:
            raise CorruptFrameError("a stored head fails its checksum")
        machine, until, created, chunk_id, count, chunk_bytes, _ = _BODY.unpack_from(raw, _BODY_AT)
        try:
            chunks = int(count, 16)
        except ValueError as error:
            raise CorruptFrameError("a stored head does not tell its pieces") from error
        if math.isnan(until) or not 0 <= chunks <= MOST_CHUNKS or (chunks and not chunk_bytes):
            raise CorruptFrameError("a stored head tells a deadline or pieces that cannot be")
        return Record(machine, None if until == math.inf else until, created, chunk_id, chunks, chunk_bytes, length)


def when(created: float) -> bytes:
    """A time of creation as it stands in a head."""
    return struct.pack("<d", created)


def names_in(raw: Buffer) -> tuple[str, str, str, str]:
    """Tenant, namespace, model, modality of a head that `Record.decode` has read. Raises `CorruptFrameError`."""
    (length,) = struct.unpack_from("<H", raw, _NAMES_AT - 2)
    try:
        return _decode_names(raw[_NAMES_AT : _NAMES_AT + length])
    except msgspec.MsgspecError as error:
        raise CorruptFrameError("the names in a stored head do not fit their schema") from error


def head_bytes(raw: Buffer) -> int:
    """Length of the head that `raw` seems to begin with, to read as much; `Record.decode` checks it."""
    return int(_FIXED.unpack_from(raw)[2]) if len(raw) >= _FIXED.size else 0
