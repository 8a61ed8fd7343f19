"""Pins: blocks that must not be evicted for now, never more than a share of the tier."""

from __future__ import annotations

from mmcache.model.errors import IntegrityError
from mmcache.model.key import Key


class Pins:
    """Counts pins a block and the bytes that they hold. The caller serialises."""

    __slots__ = ("_bytes", "_counts", "limit_bytes")

    def __init__(self, limit_bytes: float) -> None:
        self.limit_bytes = limit_bytes
        self._counts: dict[Key, tuple[int, int]] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Bytes of pinned blocks."""
        return self._bytes

    def __contains__(self, key: Key) -> bool:
        return key in self._counts

    def add(self, key: Key, charge: int, count: int = 1) -> bool:
        """Pin a block of `charge` bytes `count` times; False when the pinned share is used up."""
        held = self._counts.get(key)
        if held is None:
            if self._bytes + charge > self.limit_bytes:
                return False
            self._bytes += charge
        self._counts[key] = ((held[0] if held else 0) + count, charge)
        return True

    def take_back(self, key: Key) -> None:
        """One pin less."""
        count, charge = self._counts.get(key, (0, 0))
        if count > 1:
            self._counts[key] = (count - 1, charge)
        elif count:
            self.forget(key)

    def forget(self, key: Key) -> int:
        """The block is gone; how often it was pinned."""
        count, charge = self._counts.pop(key, (0, 0))
        self._bytes -= charge
        return count

    def check(self, charges: dict[Key, int]) -> None:
        """Raise `IntegrityError` unless the pins are of blocks held, with their bytes."""
        if any(charges.get(key) != charge for key, (_, charge) in self._counts.items()):
            raise IntegrityError("a pin is of a block that is not held, or was another size")
        if sum(charge for _, charge in self._counts.values()) != self._bytes:
            raise IntegrityError("pinned bytes do not add up")
