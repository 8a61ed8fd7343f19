"""`Remembered`: how to compute again what was visited lately, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict

from mmcache.model.key import Key
from mmcache.visits import Again

OVERHEAD = 256
"""Bytes of one entry besides what it holds, about."""
LARGEST_SHARE = 0.25
"""Of the limit; what is larger is not remembered, and can only be brought from a lower tier."""


class Remembered:
    """The last recipes, by key: the one that was longest not visited leaves first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.refused = 0
        """Recipes that were too large."""
        self._held: OrderedDict[Key, tuple[Again, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: Key, again: Again) -> bool:
        """Remember it, in place of an older one of `key`; False: it is too large."""
        self.forget(key)
        size = max(0, again.size) + OVERHEAD
        if size > self.limit_bytes * LARGEST_SHARE:
            self.refused += 1
            return False
        self._held[key] = (again, size)
        self.bytes += size
        while self.bytes > self.limit_bytes:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes -= freed
        return True

    def get(self, key: Key) -> Again | None:
        """How to compute `key`."""
        found = self._held.get(key)
        return None if found is None else found[0]

    def forget(self, key: Key) -> None:
        """Hold it no more."""
        if (found := self._held.pop(key, None)) is not None:
            self.bytes -= found[1]

    def clear(self) -> None:
        """Hold nothing."""
        self._held.clear()
        self.bytes = 0
