"""`MemoryHits`: a sample of the hits that memory answers by itself, told of after the fact."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from mmcache.tiers.hit_index import Sampled, Sink

ROOM = 4096
"""Hits that wait for their spans."""


class _Filled:
    """What was sampled at one ratio."""

    def __init__(self, every: int) -> None:
        self.every, self.waiting, self.lost = every, deque[Sampled](), 0
        waiting, append = self.waiting, self.waiting.append

        def sink(sampled: Sampled) -> None:
            if len(waiting) < ROOM:
                append(sampled)
            else:
                self.lost += 1

        self.sink = sink


class MemoryHits:
    """sample: `Answers.sample_hits`. One thread drains."""

    def __init__(self, sample: Callable[[int, Sink | None], None]) -> None:
        self._sample = sample
        self._filled: list[_Filled] = []

    def take(self, every: int) -> None:
        """One in `every` from now on; 0 = none."""
        if not every:
            self._sample(1, None)
            return
        filled = _Filled(every)
        self._filled.append(filled)
        self._sample(every, filled.sink)

    def far_from(self, every: int) -> bool:
        """Whether the ratio ought to change. Each change begins a gap anew, so small ones are left."""
        now = self._filled[-1].every if self._filled else 0
        return now != every and not 0.8 * every <= now <= 1.2 * every

    def drain(self) -> Sequence[tuple[Sampled, float]]:
        """What came since the last time, oldest first, and how many hits each stands for."""
        found: list[tuple[Sampled, float]] = []
        for filled in list(self._filled):
            lost, filled.lost = filled.lost, 0
            some = [filled.waiting.popleft() for _ in range(len(filled.waiting))]
            weight = filled.every * (len(some) + lost) / len(some) if some else 0.0
            found += [(one, weight) for one in some]
        del self._filled[:-1]
        return found

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""
        for filled in self._filled:
            filled.waiting.clear()
            filled.lost = 0
