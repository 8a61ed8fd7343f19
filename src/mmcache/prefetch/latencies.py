"""`SlidingLatencies`: how many lookups missed lately, and how slow lookups were, in a fixed amount of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import ceil, floor, inf, log

SLOTS = 12
"""Parts of the window: what is older leaves by parts."""
_FINEST = 1e-5
"""Seconds: faster is all the same."""
_BUCKETS = 200
_STEP = log(1.1)
"""A bucket is 10 % wide; the last one begins above half an hour."""


class SlidingLatencies:
    """Counts by bucket of latency and by part of the last `window` seconds."""

    def __init__(self, window: float) -> None:
        self._width = window / SLOTS
        self._slots: deque[tuple[int, dict[int, int], list[int]]] = deque()
        """Number of the part; counts by bucket; [misses]."""

    def add(self, now: float, misses: int, latencies: Iterable[float]) -> None:
        """`now` does not fall from call to call."""
        number = floor(now / self._width)
        while self._slots and self._slots[0][0] <= number - SLOTS:
            self._slots.popleft()
        if not self._slots or self._slots[-1][0] != number:
            self._slots.append((number, {}, [0]))
        _, buckets, missed = self._slots[-1]
        missed[0] += misses
        for seconds in latencies:
            place = _bucket(seconds)
            buckets[place] = buckets.get(place, 0) + 1

    @property
    def misses(self) -> int:
        """In the window."""
        return sum(missed[0] for _, _, missed in self._slots)

    def percentile(self, share: float) -> float:
        """Seconds that `share` (0…1) of the lookups stayed within, rounded up by 10 % at most; 0: there were none."""
        sums: dict[int, int] = {}
        for _, buckets, _ in self._slots:
            for place, count in buckets.items():
                sums[place] = sums.get(place, 0) + count
        left = ceil(share * sum(sums.values()))
        for place in sorted(sums):
            left -= sums[place]
            if left <= 0:
                return inf if place == _BUCKETS else _FINEST * 1.1**place
        return 0.0


def _bucket(seconds: float) -> int:
    """0 … `_BUCKETS`: the first whose upper end is not below `seconds`; nonsense counts as the fastest."""
    if not seconds > _FINEST:
        return 0
    return _BUCKETS if seconds == inf else min(_BUCKETS, ceil(log(seconds / _FINEST) / _STEP))
