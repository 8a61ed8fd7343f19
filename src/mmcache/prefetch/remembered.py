"""`Remembered`: how to compute again what was visited lately, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from mmcache.model.key import Key
from mmcache.visits import Again

OVERHEAD = 256
"""Bytes of one entry besides what it holds, about."""
LARGEST_SHARE = 0.25
"""Of the limit; what is larger is not remembered, and can only be brought from a lower tier."""


class Remembered:
    """The last recipes, by key: of the realm whose recipes hold most, the one that was longest not visited leaves
    first. So none is pushed out by another realm that goes through many."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._held: dict[Key, tuple[Again, int, Hashable]] = {}
        self._of: dict[Hashable, OrderedDict[Key, None]] = {}  # by realm, oldest first
        self._sizes: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: Key, again: Again, realm: Hashable = None) -> bool:
        """Remember it, in place of an older one of `key`; False: it is too large."""
        self.forget(key)
        size = max(0, again.size) + OVERHEAD
        if size > self.limit_bytes * LARGEST_SHARE:
            return False
        self._held[key] = (again, size, realm)
        self._of.setdefault(realm, OrderedDict())[key] = None
        self._sizes[realm] = self._sizes.get(realm, 0) + size
        self.bytes += size
        while self.bytes > self.limit_bytes:
            self.forget(next(iter(self._of[max(self._sizes, key=self._sizes.__getitem__)])))
        return True

    def get(self, key: Key) -> Again | None:
        """How to compute `key`."""
        found = self._held.get(key)
        return None if found is None else found[0]

    def forget(self, key: Key) -> None:
        """Hold it no more."""
        if (found := self._held.pop(key, None)) is None:
            return
        _, size, realm = found
        self.bytes -= size
        self._sizes[realm] -= size
        del self._of[realm][key]
        if not self._of[realm]:
            del self._of[realm], self._sizes[realm]

    def clear(self) -> None:
        """Hold nothing."""
        for held in (self._held, self._of, self._sizes):
            held.clear()
        self.bytes = 0
