"""What a load has seen, as sums that are added up over lanes, processes and time; times in a histogram."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

BIN_SECONDS = 0.25
"""Of time, what is told at once."""
_LEAST, _BASE = 1e-5, 1.05
_LOG = math.log(_BASE)


class Histogram:
    """Seconds, in classes 5 % apart, from 10 µs on."""

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[math.ceil(math.log(seconds / _LEAST) / _LOG) if seconds > _LEAST else 0] += 1

    def percentile(self, share: float) -> float | None:
        """The upper end of the class in which `share` of them is reached, seconds; None without any."""
        wanted = share * self.counts.total()
        reached = 0
        for place in sorted(self.counts):
            reached += self.counts[place]
            if reached >= wanted:
                return _LEAST * _BASE**place
        return None


class Counts(msgspec.Struct):
    """Of one lane in one bin of time, or of many."""

    reads: int = 0
    hits: int = 0
    missed: dict[str, int] = msgspec.field(default_factory=dict)
    """Reads without a block, by reason."""
    writes: int = 0
    stored: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    wrong: int = 0
    """Blocks that were never stored so."""
    stale: int = 0
    """Older than one whose write was acknowledged."""
    lost: int = 0
    """Keys not there, though their write was acknowledged; seen for the first time. They may come back."""
    bytes_read: int = 0
    bytes_written: int = 0
    took: dict[int, int] = msgspec.field(default_factory=dict)
    """Of reads, from when they were to come: a `Histogram`."""
    took_writes: dict[int, int] = msgspec.field(default_factory=dict)

    @property
    def requests(self) -> int:
        """All."""
        return self.reads + self.writes

    @property
    def failed(self) -> int:
        """Reads that were not answered, and writes that were not stored: not those of which nothing was stored."""
        return sum(self.missed.values()) - self.missed.get("absent", 0) + sum(self.refused.values())

    @property
    def hit_share(self) -> float | None:
        """Of reads, 0…1."""
        return self.hits / self.reads if self.reads else None

    def percentile(self, share: float) -> float | None:
        """Of reads and writes together, seconds."""
        return _sum_of([self.took, self.took_writes]).percentile(share)

    def add(self, other: Counts) -> None:
        """Take what `other` counted in."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _BY:
            mine = getattr(self, name)
            for key, count in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + count


_BY = ("missed", "refused", "took", "took_writes")
_SUMS = tuple(name for name in Counts.__struct_fields__ if name not in _BY)


def _sum_of(histograms: Iterable[dict[int, int]]) -> Histogram:
    total = Histogram()
    for one in histograms:
        total.counts.update(one)
    return total


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """An acknowledged write that is not there any more."""

    number: int
    version: int
    at: float
    """When it was acknowledged: seconds, `time.monotonic` of the machine."""


class Checked(msgspec.Struct):
    """What is there at the end, of all keys that were written."""

    keys: int = 0
    right: int = 0
    """There, every byte."""
    lost: int = 0
    stale: int = 0
    wrong: int = 0
    unsure: int = 0
    """Not there, and their last write was not acknowledged."""
    unread: int = 0
    """Could not be read."""


@dataclass
class Timeline:
    """Counts by bin of time since the beginning."""

    bins: dict[int, Counts] = field(default_factory=dict)

    def add(self, place: int, counts: Counts) -> None:
        """Of one lane."""
        self.bins.setdefault(place, Counts()).add(counts)

    def between(self, begin: float, end: float) -> Counts:
        """Sum of the bins from `begin` to `end`, seconds."""
        low, high = math.floor(begin / BIN_SECONDS), math.ceil(end / BIN_SECONDS)
        return total([counts for place, counts in self.bins.items() if low <= place < high])

    def total(self) -> Counts:
        """All."""
        return total(list(self.bins.values()))

    @property
    def seconds(self) -> float:
        """To the end of the last bin."""
        return (max(self.bins) + 1) * BIN_SECONDS if self.bins else 0.0


def total(many: Sequence[Counts]) -> Counts:
    """Their sum."""
    made = Counts()
    for one in many:
        made.add(one)
    return made
