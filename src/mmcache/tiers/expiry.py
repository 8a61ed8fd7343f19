"""When blocks end: a heap, so that what is over holds no memory until somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from mmcache.model.key import Key

_SLACK = 64


class Expiries:
    """Ends by key. Entries of the heap that a newer end replaced are skipped when they come up. O(log n) amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Key]] = []
        self._ends: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def set(self, key: Key, end: float | None) -> None:
        """`key` ends at `end`; None = never."""
        if end is None:
            self._ends.pop(key, None)
            return
        self._ends[key] = end
        heappush(self._heap, (end, key))
        if len(self._heap) > 2 * len(self._ends) + _SLACK:  # mostly replaced ones
            self._heap = [(until, each) for each, until in self._ends.items()]
            heapify(self._heap)

    def forget(self, key: Key) -> None:
        """`key` is gone."""
        self._ends.pop(key, None)

    def over(self, now: float) -> Iterator[Key]:
        """Keys whose end has come, once; they are forgotten."""
        while self._heap and self._heap[0][0] <= now:
            end, key = heappop(self._heap)
            if self._ends.get(key) == end:
                del self._ends[key]
                yield key
