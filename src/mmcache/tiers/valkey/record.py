"""A value as it rests on the server: a head that is checked by itself, then the frame.

Layout (little endian): magic, version, length of the head (a multiple of 64), xxh3-64 of what follows in it; machine
and deadline in that machine's own time (see `clocks`); time of creation; length, msgpack of tenant, namespace, model,
modality.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import msgspec
import xxhash

from mmcache.model.errors import CorruptFrameError, FormatVersionError
from mmcache.model.frame import Buffer, Frame, aligned
from mmcache.tiers.base import Deadline

MAGIC = b"MMCV"
VERSION = 1
MACHINE_BYTES = 8
LONGEST_HEAD = 0xFFC0
_FIXED = struct.Struct("<4sHHQ")
_BODY = struct.Struct("<8sddH")
_NAMES = msgspec.msgpack.Decoder(tuple[str, str, str, str])


@dataclass(frozen=True, slots=True)
class Record:
    """The head of a stored value."""

    machine: bytes
    """8 bytes; whose own time `until` is in."""
    until: Deadline
    """Seconds; None = never."""
    created: float
    """Unix seconds."""
    names: tuple[str, str, str, str]
    """Tenant, namespace, model, modality."""
    length: int = 0
    """Bytes of the head; what follows is the frame."""

    @staticmethod
    def of(frame: Frame, machine: bytes, until: Deadline) -> Record:
        """The head for a frame."""
        header = frame.header
        return Record(
            machine, until, header.created, (header.tenant, header.namespace, header.model, header.modality)
        )  # fmt: skip

    def encode(self) -> bytes | None:
        """None when the names are too long for a head."""
        until = math.inf if self.until is None else self.until
        names = msgspec.msgpack.encode(self.names)
        length = aligned(_FIXED.size + _BODY.size + len(names))
        if length > LONGEST_HEAD:
            return None
        body = (_BODY.pack(self.machine, until, self.created, len(names)) + names).ljust(length - _FIXED.size, b"\0")
        return _FIXED.pack(MAGIC, VERSION, length, xxhash.xxh3_64_intdigest(body)) + body

    @staticmethod
    def decode(raw: Buffer) -> Record:
        """Read the head that `raw` begins with. Raises `CorruptFrameError`, `FormatVersionError`."""
        length = head_bytes(raw)
        if length > len(raw):
            raise CorruptFrameError("a stored head is cut off")
        _, _, _, checksum = _FIXED.unpack_from(raw)
        body = memoryview(raw)[_FIXED.size : length]
        if xxhash.xxh3_64_intdigest(body) != checksum:
            raise CorruptFrameError("a stored head fails its checksum")
        machine, until, created, named = _BODY.unpack_from(body)
        if math.isnan(until):
            raise CorruptFrameError("a stored deadline is no number")
        try:
            names = _NAMES.decode(body[_BODY.size : _BODY.size + named])
        except msgspec.MsgspecError as error:
            raise CorruptFrameError("the names in a stored head do not fit their schema") from error
        return Record(machine, None if until == math.inf else until, created, names, length)


def head_bytes(raw: Buffer) -> int:
    """Length of the head that `raw` begins with. Raises `CorruptFrameError`, `FormatVersionError`."""
    if len(raw) < _FIXED.size:
        raise CorruptFrameError("a stored value is cut off")
    magic, version, length, _ = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise CorruptFrameError("not a stored value of mmcache: wrong magic")
    if version > VERSION:
        raise FormatVersionError(f"stored format {version} is newer than {VERSION}; upgrade mmcache")
    if length < aligned(_FIXED.size + _BODY.size):
        raise CorruptFrameError("a stored head is too short")
    return int(length)
