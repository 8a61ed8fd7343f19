"""`Repeat`: an encoder's call that can be made another time. What a prefetcher remembers; see `visits.Again`."""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.keys.region import Region

if TYPE_CHECKING:
    from mmcache.encoder import Encoder

UNKNOWN_BYTES = 1 << 62
"""Of what nobody knows the size of, or what can be read only once, like an open file."""
MOST_PARTS = 64
"""Values that a call holds; of one that holds more nobody knows the size, for counting them would take too long."""
_ENTRY_BYTES = 512
"""Of a call that holds nothing."""
_FIXED = (type(None), bool, int, float)


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
        """See `Again`. It takes a few microseconds at most, whatever the call holds."""
        found = held_bytes((self.source, *self.arguments, *self.keywords.values()))
        return UNKNOWN_BYTES if found is None else _ENTRY_BYTES + found

    def __call__(self, ttl: float | None) -> int:
        """See `Again`."""
        # A list or a dict is the caller's, who may write to it while this runs: the key must be of what is computed on.
        arguments, keywords = deepcopy((self.arguments, self.keywords))
        return self.encoder.bring(self.source, self.region, arguments, keywords, ttl)


def held_bytes(values: tuple[Any, ...]) -> int | None:
    """Bytes that holding `values` holds, about; None: nobody knows. Of a view, what it is a view of counts.

    Types are taken exactly: a subclass may hold anything beside what it shows.
    """
    ahead, parts, size = list(values), 0, 0
    while ahead:
        value = ahead.pop()
        parts += 1
        kind = type(value)
        if kind in _FIXED:
            size += 32
        elif kind is str or kind is bytes or kind is bytearray:
            size += 64 + len(value) * (4 if kind is str else 1)
        elif kind is list or kind is tuple or kind is dict:
            if parts + len(ahead) + len(value) > MOST_PARTS:  # one that holds itself ends here, too
                return None
            ahead.extend(value.values() if kind is dict else value)
            size += 64
        elif kind is np.ndarray:
            if (held := _array_bytes(value)) is None:
                return None
            size += held
        elif isinstance(value, PurePath):
            size += 64 + 4 * len(str(value))
        elif (held := _foreign_bytes(value, kind)) is not None:
            size += held
        else:
            return None
    return size


def _array_bytes(array: Any) -> int | None:
    if array.dtype.hasobject:
        return None
    held: int = array.nbytes
    while (base := array.base) is not None:
        if type(base) is bytes:
            return max(held, len(base))
        if type(base) is not np.ndarray:  # a mapped file, another library's memory…
            return None
        array, held = base, max(held, base.nbytes)
    return 128 + held


def _foreign_bytes(value: Any, kind: type) -> int | None:
    """Of a Pillow picture, or of a torch tensor in main memory without a graph behind it."""
    module = kind.__module__
    if module.startswith("PIL.") and isinstance(pixels := getattr(value, "size", None), tuple):
        return int(pixels[0] * pixels[1] * 4)
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor and value.device.type == "cpu" and not value.requires_grad:
        return int(value.untyped_storage().nbytes())
    return None
