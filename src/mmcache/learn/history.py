"""Uses in steps: what a forecast looks back on, and what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmcache.model.key import Key
from mmcache.policies.forecast import SEQUENCE, Floats


@dataclass(frozen=True)
class Past:
    """The blocks that the last `SEQUENCE` steps used, n of them."""

    keys: tuple[Key, ...]
    counts: Floats
    """float32 [n, SEQUENCE]: uses in each step, oldest first."""


class History:
    """Counts uses in steps: a step ends after `uses` uses or `seconds` seconds, whichever is first.

    Memory: at most `uses` counts a step, for twice `SEQUENCE` steps.
    """

    def __init__(self, uses: int, seconds: float) -> None:
        self.uses = max(1, uses)
        self.seconds = seconds
        self._steps: deque[dict[Key, int]] = deque(maxlen=2 * SEQUENCE)
        self._current: dict[Key, int] = {}
        self._count = 0
        self._began: float | None = None

    def use(self, key: Key, now: float) -> Iterator[None]:
        """Count one use; yields once for each step that ended before it or with it."""
        if self._began is None:
            self._began = now
        idle = 0
        while now - self._began >= self.seconds and idle < 2 * SEQUENCE:
            self._end(self._began + self.seconds)
            idle += 1
            yield
        if now - self._began >= self.seconds:
            self._began = now  # a long rest: everything before it is forgotten by now
        self._current[key] = self._current.get(key, 0) + 1
        self._count += 1
        if self._count >= self.uses:
            self._end(now)
            yield

    def _end(self, now: float) -> None:
        self._steps.append(self._current)
        self._current, self._count, self._began = {}, 0, now

    def past(self, ago: int = 0) -> Past | None:
        """The `SEQUENCE` steps that ended `ago` steps ago; None while there are not so many."""
        last = len(self._steps) - ago
        if last < SEQUENCE:
            return None
        steps = [self._steps[place] for place in range(last - SEQUENCE, last)]
        rows = {key: row for row, key in enumerate(dict.fromkeys(key for step in steps for key in step))}
        counts = np.zeros((len(rows), SEQUENCE), np.float32)
        for column, step in enumerate(steps):
            for key, uses in step.items():
                counts[rows[key], column] = uses
        return Past(tuple(rows), counts)

    def since(self, keys: tuple[Key, ...]) -> Floats:
        """Uses of `keys` within the last `SEQUENCE` steps, float32 [n]."""
        found = np.zeros(len(keys), np.float32)
        rows = {key: row for row, key in enumerate(keys)}
        for place in range(max(0, len(self._steps) - SEQUENCE), len(self._steps)):
            for key, uses in self._steps[place].items():
                if (row := rows.get(key)) is not None:
                    found[row] += uses
        return found
