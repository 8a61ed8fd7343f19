"""`Schedule`: which of three queues is served next. Pure: no clock, no I/O.

Frames, regions and speech share the work by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): each queue
has a virtual clock, the one furthest behind is served, and serving an item moves its clock on by the item's bytes times
the queue's weight. So while all three have work, each gets the same *weighted* bytes: a heavier queue fewer of its own.
A queue that had nothing to do gains no credit by that.

Weights start at frames 1.5, regions 1.0, speech 0.8, and are moved by two things that are observed:

* delay: what takes longer a byte, to decode and to compute, than the others do (geometric mean) costs more, by the
  root of the ratio;
* use: kinds whose warmed blocks are hit more often than the average cost less, by the ratio of the shares; a prior of
  32 blocks at the average keeps small samples quiet.

Each stays within a factor of two, so a weight stays within four of where it started, and nobody starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Generic, TypeVar

from mmcache.prefetch.media.task import KINDS, Kind

T = TypeVar("T")

WEIGHTS: Mapping[Kind, float] = {"frame": 1.5, "ocr": 1.0, "asr": 0.8}
MOST = 2.0
"""Factor by which each of delay and use may move a weight, either way."""
PRIOR = 32.0
"""Blocks at the average share of use that each kind begins with."""
MEMORY = 0.9
"""Share of the old mean that one more observation of delay leaves."""


@dataclass(slots=True)
class _Queue(Generic[T]):
    items: deque[tuple[int, T]] = field(default_factory=deque)
    clock: float = 0.0
    seconds: float = 0.0
    """That items took, exponentially averaged, as are their bytes."""
    bytes: float = 0.0
    warmed: int = 0
    used: int = 0


def _within(factor: float) -> float:
    return min(MOST, max(1 / MOST, factor))


class Schedule(Generic[T]):
    """Three queues of items with a size in bytes."""

    def __init__(self, weights: Mapping[Kind, float] = WEIGHTS) -> None:
        self._base = {kind: float(weights[kind]) for kind in KINDS}
        self._queues: dict[Kind, _Queue[T]] = {kind: _Queue() for kind in KINDS}
        self._now = 0.0
        self._bytes = 0

    def __len__(self) -> int:
        return sum(len(queue.items) for queue in self._queues.values())

    @property
    def waiting_bytes(self) -> int:
        """Of all items that wait."""
        return self._bytes

    def waiting(self, kind: Kind) -> int:
        """Items that wait."""
        return len(self._queues[kind].items)

    def add(self, kind: Kind, size: int, item: T, *, first: bool = False) -> None:
        """Append an item of `size` bytes. first: ahead of its queue, as for what an item that was served led to."""
        queue = self._queues[kind]
        if not queue.items:
            queue.clock = max(queue.clock, self._now)
        if first:
            queue.items.appendleft((size, item))
        else:
            queue.items.append((size, item))
        self._bytes += size

    def take(self) -> tuple[Kind, T] | None:
        """The next item, or None where there is none. Ties go in the order of `KINDS`."""
        kinds = [kind for kind in KINDS if self._queues[kind].items]
        if not kinds:
            return None
        kind = min(kinds, key=lambda one: self._queues[one].clock)
        queue = self._queues[kind]
        size, item = queue.items.popleft()
        self._now = queue.clock
        queue.clock += size * self.weight(kind)
        self._bytes -= size
        return kind, item

    def took(self, kind: Kind, size: int, seconds: float) -> None:
        """Observe that an item of `size` bytes took that long to decode and to compute."""
        if size <= 0 or seconds <= 0:
            return
        queue = self._queues[kind]
        kept = MEMORY if queue.bytes else 0.0
        queue.seconds = kept * queue.seconds + (1 - kept) * seconds
        queue.bytes = kept * queue.bytes + (1 - kept) * size

    def used(self, kind: Kind, warmed: int, used: int) -> None:
        """Observe that of so many blocks that were warmed, so many were hit later."""
        queue = self._queues[kind]
        queue.warmed += warmed
        queue.used += min(used, warmed)

    def weight(self, kind: Kind) -> float:
        """What a byte of `kind` costs now."""
        return self._base[kind] * self._delay_factor(kind) * self._use_factor(kind)

    def weights(self) -> dict[Kind, float]:
        """Of all three."""
        return {kind: self.weight(kind) for kind in KINDS}

    def _delay_factor(self, kind: Kind) -> float:
        delays = {kind: queue.seconds / queue.bytes for kind, queue in self._queues.items() if queue.bytes}
        if kind not in delays or len(delays) < 2:
            return 1.0
        return _within(sqrt(delays[kind] / exp(sum(map(log, delays.values())) / len(delays))))

    def _use_factor(self, kind: Kind) -> float:
        warmed = sum(queue.warmed for queue in self._queues.values())
        used = sum(queue.used for queue in self._queues.values())
        if not warmed or not used:
            return 1.0
        average, queue = used / warmed, self._queues[kind]
        share = (queue.used + PRIOR * average) / (queue.warmed + PRIOR)
        return _within(average / share)
