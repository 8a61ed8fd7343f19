"""`Repeat`: an encoder's call that can be made another time. What a prefetcher remembers; see `visits.Again`."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from mmcache.keys.region import Region

if TYPE_CHECKING:
    from mmcache.encoder import Encoder

UNKNOWN_BYTES = 1 << 62
"""Of what nobody knows the size of, or what can be read only once, like an open file."""
_ENTRY_BYTES = 512
"""Of a call that holds nothing."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`encoder(source, *arguments, **keywords)`.

    Its key is made anew from what `source` holds by then: a file or an array that has changed meanwhile is stored as
    what it is now, and never under the old key.
    """

    encoder: Encoder
    source: Any
    region: Region | None
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def size(self) -> int:
        """See `Again`."""
        held = (self.source, *self.arguments, *self.keywords.values())
        return min(UNKNOWN_BYTES, _ENTRY_BYTES + sum(map(_bytes, held)))

    def __call__(self, ttl: float | None) -> int:
        """See `Again`."""
        return self.encoder.bring(self.source, self.region, self.arguments, self.keywords, ttl)


def _bytes(value: Any) -> int:
    if value is None or isinstance(value, bool | int | float):
        return 32
    if isinstance(value, str | bytes | bytearray | PathLike):
        return 64 + 4 * len(value if isinstance(value, str | bytes | bytearray) else str(value))
    if isinstance(value, list | tuple):
        return 64 + sum(map(_bytes, value))
    if isinstance(size := getattr(value, "nbytes", None), int):  # arrays and tensors
        return size
    if isinstance(pixels := getattr(value, "size", None), tuple) and hasattr(value, "getbands"):  # Pillow's pictures
        return int(pixels[0] * pixels[1] * 4)
    return UNKNOWN_BYTES
