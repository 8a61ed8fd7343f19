"""`Mark`: a key that became hot, as the kernel saw it, and as it is sent to the process that is traced."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mmcache.model.key import Key

_WIRE = struct.Struct("<8sQQQQ48s")
_MAGIC = b"mmcmark1"


@dataclass(frozen=True, slots=True)
class Mark:
    """One crossing of the threshold."""

    key: Key
    at: int
    """When it crossed, in nanoseconds of `time.monotonic_ns()` of this machine."""
    reads: int
    """How often it was read since the trace began, or since the kernel forgot it in between."""
    delay_max: int
    """Longest of these reads, in nanoseconds."""
    waiting: int
    """How many reads were waiting for a lower tier when it crossed."""

    def pack(self) -> bytes:
        """For a datagram."""
        return _WIRE.pack(_MAGIC, self.at, self.reads, self.delay_max, self.waiting, self.key)

    @classmethod
    def unpack(cls, raw: bytes) -> Mark | None:
        """None for what is no mark."""
        if len(raw) != _WIRE.size or raw[:8] != _MAGIC:
            return None
        _, at, reads, delay, waiting, key = _WIRE.unpack(raw)
        return cls(Key.from_bytes(key), at, reads, delay, waiting)
