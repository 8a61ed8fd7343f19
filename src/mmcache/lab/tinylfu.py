"""W-TinyLFU for blocks of any size, with an adaptive window: a rival of our own making, as Caffeine does it.

Einziger, Friedman and Manes, "TinyLFU" (ACM ToS 2017), with sizes as in Caffeine's weighted caches and the hill climber
of Einziger, Eytan, Friedman and Manes, "Adaptive software cache management" (Middleware 2018). Frequencies are exact
where a real one has a sketch, which can only help it.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from mmcache.lab.traces.trace import Trace

WINDOW, PROTECTED = 0.01, 0.8
"""Of all bytes: the first window; of the rest: the protected segment."""
MOST_USES = 15
SAMPLE = 10
"""Frequencies are halved, and the window moves, after so many requests a block that fits."""
FIRST_STEP, STEP_DECAY, RESTART = 0.0625, 0.98, 0.05
"""The climber's step (of all bytes), how it shrinks, and the change of hit ratio at which it starts again."""

Segment = OrderedDict[int, None]


class WTinyLFU:
    """A cache of `limit_bytes`; `request` says whether it was a hit."""

    def __init__(self, limit_bytes: int, sizes: list[int], mean_bytes: float) -> None:
        self._limit, self._sizes = limit_bytes, sizes
        self._window: Segment = OrderedDict()
        self._probation: Segment = OrderedDict()
        self._protected: Segment = OrderedDict()
        self._held = self._window_held = self._protected_held = 0
        self._window_most = WINDOW * limit_bytes
        self._uses: dict[int, int] = {}
        self._sample = max(100, int(SAMPLE * limit_bytes / mean_bytes))
        self._asked = self._hit = 0
        self._ratio, self._step = 0.0, FIRST_STEP * limit_bytes

    def request(self, block: int) -> bool:
        """Whether `block` was there; it is stored, or refused, if not."""
        self._asked += 1
        if self._asked > self._sample:
            self._climb()
        uses = self._uses.get(block, 0)
        if uses < MOST_USES:
            self._uses[block] = uses + 1
        if block in self._window:
            self._window.move_to_end(block)
        elif block in self._protected:
            self._protected.move_to_end(block)
        elif block in self._probation:
            del self._probation[block]
            self._protected[block] = None
            self._protected_held += self._sizes[block]
            self._demote()
        else:
            self._store(block)
            return False
        self._hit += 1
        return True

    def _store(self, block: int) -> None:
        self._window[block] = None
        self._held += self._sizes[block]
        self._window_held += self._sizes[block]
        self._fit(self._leave_window())

    def _leave_window(self) -> list[int]:
        """Blocks that the window is too small for, now on probation; the oldest first."""
        left = []
        while self._window_held > self._window_most and self._window:
            block, _ = self._window.popitem(last=False)
            self._window_held -= self._sizes[block]
            self._probation[block] = None
            left.append(block)
        return left

    def _fit(self, candidates: list[int]) -> None:
        """Evict until all fits: of a candidate and the oldest on probation, the one used less; of equals, it."""
        uses = self._uses.get
        while self._held > self._limit:
            victim = next(iter(self._probation), None)
            if candidates and victim is not None:
                candidate = candidates[-1]
                if candidate == victim or uses(candidate, 0) <= uses(victim, 0):
                    candidates.pop()
                    victim = candidate
                del self._probation[victim]
            elif victim is not None:
                del self._probation[victim]
            elif self._protected:
                victim, _ = self._protected.popitem(last=False)
                self._protected_held -= self._sizes[victim]
            else:
                victim, _ = self._window.popitem(last=False)
                self._window_held -= self._sizes[victim]
            self._held -= self._sizes[victim]

    def _demote(self) -> None:
        most = PROTECTED * (self._limit - self._window_most)
        while self._protected_held > most:
            block, _ = self._protected.popitem(last=False)
            self._protected_held -= self._sizes[block]
            self._probation[block] = None

    def _climb(self) -> None:
        """Halve the frequencies, and move the window on if that raised the hit ratio, else back."""
        self._uses = {block: uses // 2 for block, uses in self._uses.items() if uses > 1}
        ratio = self._hit / self._asked
        change, self._ratio = ratio - self._ratio, ratio
        amount = self._step if change >= 0 else -self._step
        first = FIRST_STEP * self._limit
        self._step = (first if amount >= 0 else -first) if abs(change) >= RESTART else STEP_DECAY * amount
        self._window_most = min(max(self._window_most + amount, WINDOW * self._limit), PROTECTED * self._limit)
        self._asked = self._hit = 0
        self._demote()
        self._fit(self._leave_window())


def tinylfu(trace: Trace, limit_bytes: int) -> npt.NDArray[np.bool_]:
    """bool [n]: its hits on `trace`; a block larger than the limit passes it by."""
    sizes = trace.sizes.tolist()
    request = WTinyLFU(limit_bytes, sizes, max(1.0, float(trace.sizes.mean()) if len(sizes) else 1.0)).request
    return np.array([sizes[block] <= limit_bytes and request(block) for block in trace.ids.tolist()], np.bool_)
