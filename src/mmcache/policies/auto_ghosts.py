"""What `auto` remembers of blocks that are gone, in plain Python: sets of 8 in flat arrays, the oldest goes first."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator

WAYS, PER_BLOCK = 8, 3
_WORD, _HALF = (1 << 64) - 1, (1 << 32) - 1


def hash_of(key: bytes) -> int:
    """32 bits; the same in every process, unlike Python's."""
    value = len(key)
    for at in range(0, len(key), 8):
        value = (value ^ int.from_bytes(key[at : at + 8].ljust(8, b"\0"), sys.byteorder)) * 0x9E3779B97F4A7C15 & _WORD
        value ^= value >> 32
    return (value * 0xBF58476D1CE4E5B9 & _WORD) >> 32


class Ghosts:
    """Hash, last use, uses and class of what was here lately: 10 bytes each, three for each block held."""

    def __init__(self) -> None:
        self.sets, self.count = 0, 0
        self._hash, self._last, self._meta = array("I"), array("I"), array("H")

    def _places(self, hash_: int) -> range:
        first = (hash_ * self.sets >> 32) * WAYS
        return range(first, first + WAYS) if self.sets else range(0)

    def take(self, hash_: int) -> tuple[int, int, int] | None:
        """Last use, uses and class of that ghost, which leaves; None if there is none."""
        for at in self._places(hash_):
            if self._hash[at] == hash_ and self._last[at]:
                found = self._last[at], self._meta[at] >> 6, self._meta[at] & 63
                self._last[at] = 0
                self.count -= 1
                return found
        return None

    def put(self, hash_: int, last: int, uses: int, group: int) -> tuple[int, int] | None:
        """Remember a block; last use and class of the ghost that makes room, if one does."""
        places = self._places(hash_)
        if not places:
            return None
        at = places[0]
        for place in places:  # the same, else a free place, else the oldest
            if self._hash[place] == hash_ and self._last[place]:
                at = place
                break
            if self._last[place] < self._last[at]:
                at = place
        gone = (self._last[at], self._meta[at] & 63) if self._last[at] else None
        self.count += gone is None
        self._hash[at], self._last[at], self._meta[at] = hash_, last, uses << 6 | group
        return gone

    def fit(self, blocks: int) -> Iterator[tuple[int, int]]:
        """Room for the ghosts of so many blocks; yields last use and class of those that find no place."""
        sets = max((blocks * PER_BLOCK + WAYS - 1) // WAYS, 8)
        if self.sets >= sets >= self.sets // 4 * 3:
            return
        sets += sets // 16
        old = list(zip(self._hash, self._last, self._meta, strict=True))
        self.sets, self.count = sets, 0
        self._hash, self._last = array("I", [0]) * (sets * WAYS), array("I", [0]) * (sets * WAYS)
        self._meta = array("H", [0]) * (sets * WAYS)
        for hash_, last, meta in old:
            if last and (gone := self.put(hash_, last, meta >> 6, meta & 63)):
                yield gone

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Last use and class of each."""
        return ((last, meta & 63) for last, meta in zip(self._last, self._meta, strict=True) if last)

    def set_back(self, by: int) -> None:
        """All times go back by so much, to 1 at the earliest."""
        for at, last in enumerate(self._last):
            if last:
                self._last[at] = max(last - by, 1)
