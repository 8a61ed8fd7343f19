"""What the index holds of a block: where its frame lies, until when it may be served, and what `scan` tells of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from mmcache.model.clock import Clock
from mmcache.model.errors import CorruptFrameError
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Held

_HEAD = struct.Struct("<QQQQdd8sdf")
_NAMES = msgspec.msgpack.Decoder(tuple[str, str, str, str])
_encode_names = msgspec.msgpack.Encoder().encode
_NEVER = float("inf")
OWNER_BYTES = 8


def owner_of(tenant: str) -> bytes:
    """A digest of a tenant's name, 8 bytes: what blocks are counted by."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=OWNER_BYTES).digest()


@lru_cache(1024)
def owner_in(names: bytes) -> bytes:
    """The owner that a record's `names` tell of; of those that cannot be read, one that no tenant has."""
    try:
        return owner_of(_NAMES.decode(names)[0])
    except msgspec.MsgspecError:
        return bytes(OWNER_BYTES)


@cache
def boot_id() -> bytes:
    """8 bytes that change with every start of the machine; zeros where it tells none (then wall time decides)."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))[:8]
    except (OSError, ValueError):
        return bytes(8)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the index."""

    segment: int
    offset: int
    """Bytes from the segment's start; a multiple of 64."""
    length: int
    """Bytes of the whole frame."""
    size: int
    """Bytes of its payload."""
    until_monotonic: float
    until_wall: float
    boot: bytes
    created: float
    cost: float
    names: bytes
    """msgpack of tenant, namespace, model, modality."""

    @staticmethod
    def of(frame: Frame, deadline: Deadline, segment: int, offset: int, length: int, clock: Clock) -> Record:
        """The line for a frame that was written at `offset` of `segment`."""
        until, wall = _NEVER, _NEVER
        if deadline is not None:
            until, wall = deadline, clock.wall() + deadline - clock.monotonic()
        header = frame.header
        names = _encode_names((header.tenant, header.namespace, header.model, header.modality))
        return Record(segment, offset, length, frame.size, until, wall, boot_id(), header.created, header.cost, names)

    def encode(self) -> bytes:
        """Fixed head, then the names."""
        head = _HEAD.pack(
            self.segment, self.offset, self.length, self.size,
            self.until_monotonic, self.until_wall, self.boot, self.created, self.cost,
        )  # fmt: skip
        return head + self.names

    @staticmethod
    def decode(raw: bytes) -> Record:
        """Raises `CorruptFrameError` when `raw` is no record."""
        if len(raw) < _HEAD.size:
            raise CorruptFrameError("an index entry is cut off")
        segment, offset, length, size, until, wall, boot, created, cost = _HEAD.unpack_from(raw)
        return Record(segment, offset, length, size, until, wall, boot, created, cost, raw[_HEAD.size :])

    def deadline(self, clock: Clock) -> Deadline:
        """Monotonic seconds. On the boot that wrote it the stored monotonic time counts, which no clock step moves;
        after a reboot only wall time means anything."""
        if self.until_monotonic == _NEVER:
            return None
        if self.boot == boot_id() != bytes(8):
            return self.until_monotonic
        return clock.monotonic() + self.until_wall - clock.wall()

    def held(self, key: Key, clock: Clock) -> Held:
        """The line that `scan` yields. Raises `CorruptFrameError`."""
        try:
            tenant, namespace, model, modality = _NAMES.decode(self.names)
        except msgspec.MsgspecError as error:
            raise CorruptFrameError("an index entry's names do not fit their schema") from error
        return Held(key, self.length, self.deadline(clock), self.created, tenant, namespace, model, modality)
