"""`RegionIndex`: which regions of a picture are known, so that a lookup can say "3 of the 4 tiles of this crop"."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mmcache.keys.region import Region


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which of the wanted regions are known. `str()`: `3 of 4`."""

    have: tuple[Region, ...]
    missing: tuple[Region, ...]

    def __str__(self) -> str:
        return f"{len(self.have)} of {len(self.have) + len(self.missing)}"


class RegionIndex:
    """Regions by their original's content digest; the originals longest unused go first. Thread-safe.

    A hint: it may name a region whose block was evicted meanwhile. `discard` keeps it close to the truth.
    """

    def __init__(self, most_originals: int = 10_000) -> None:
        self._most = most_originals
        self._held: dict[bytes, set[Region]] = {}
        self._lock = threading.Lock()

    def add(self, original: bytes, regions: Iterable[Region]) -> None:
        """These regions of `original` are stored."""
        with self._lock:
            self._held[original] = self._held.pop(original, set()) | set(regions)
            while len(self._held) > self._most:
                del self._held[next(iter(self._held))]

    def discard(self, original: bytes, regions: Iterable[Region] | None = None) -> None:
        """These regions (None = all) are no longer stored."""
        with self._lock:
            left = set() if regions is None else self._held.get(original, set()) - set(regions)
            if left:
                self._held[original] = left
            else:
                self._held.pop(original, None)

    def known(self, original: bytes) -> set[Region]:
        """All known regions of `original`."""
        with self._lock:
            return set(self._held.get(original, ()))

    def covering(self, original: bytes, region: Region) -> list[Region]:
        """Known regions that show all of `region`'s source rectangle, the smallest first."""
        return sorted((each for each in self.known(original) if each.contains(region)), key=_area)

    def overlapping(self, original: bytes, region: Region) -> list[Region]:
        """Known regions that show a part of it, the smallest first."""
        return sorted((each for each in self.known(original) if each.overlaps(region)), key=_area)

    def coverage(self, original: bytes, wanted: Sequence[Region]) -> Coverage:
        """Which of `wanted` are known, exactly (same rectangle, scale, turn and filter); order is kept."""
        known = self.known(original)
        return Coverage(
            tuple(each for each in wanted if each in known), tuple(each for each in wanted if each not in known)
        )


def _area(region: Region) -> tuple[int, bytes]:
    left, upper, right, lower = region.box
    return (right - left) * (lower - upper), region.canonical()
