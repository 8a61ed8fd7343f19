"""The cohort: some hundred gaps between uses, drawn fairly, open ones among them. Survival is estimated from it.

A gap begins when a block is stored or used, and ends with the next use, or with the next store after it was gone.
Every gap that begins has the same chance to replace a random one of the cohort, so the cohort is an unbiased sample of
the gaps that began over the last `memory` seconds (older ones fade exponentially). What has not ended yet stays in it,
open: right-censored at its age. Leaving those out would make every lifetime too short, the more so the shorter it is.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.model.key import Key
from mmcache.ttl.gamma import Floats, Sums


@dataclass(frozen=True, slots=True)
class Seen:
    """The cohort at one moment, in seconds."""

    whole: Floats
    """Gaps that ended."""
    open: Floats
    """Ages of gaps that did not."""
    mature: Floats
    """Gaps that ended, of those that began so long ago that even the longest seen would have ended."""
    returned: float
    """Share of those that ended; 0 where there are none."""
    returned_soon: float | None = None
    """Share that ended of the gaps that began longer ago than nine in ten of the ended ones took. Of a law's own gaps
    that is about 0.9. None before the cohort reaches back three times as long: it would say nothing yet."""


class Cohort:
    """At most `size` gaps; O(1) a use. Randomness is seeded: equal calls, equal cohort."""

    def __init__(self, size: int, memory: float, seed: int) -> None:
        self.size, self.memory = size, memory
        self.ended = 0
        """Gaps that ended so far."""
        self._random = random.Random(seed)
        self._began: list[float] = []
        self._gap: list[float] = []  # NaN while open
        self._echo: list[float] = []
        self._keys: list[Key] = []
        self._open: dict[Key, int] = {}
        self._rate = 0.0  # gaps begun, forgotten with time constant `memory`
        self._latest = -math.inf

    def use(self, key: Key, now: float, echo: float = 0.0) -> None:
        """`key` was used or stored. Uses within `echo` seconds (its recompute) after the gap began are part of the same
        use: callers that wait for one computation, and the store that follows a refresh."""
        place = self._open.get(key)
        if place is not None:
            gap = now - self._began[place]
            if gap <= max(echo, self._echo[place]):
                return
            self._gap[place] = gap
            del self._open[key]
            self.ended += 1
        self._begin(key, now, echo)

    def _begin(self, key: Key, now: float, echo: float) -> None:
        passed = now - self._latest
        if passed > 0.0:
            self._rate *= math.exp(-passed / self.memory)
            self._latest = now
        self._rate += 1.0
        if len(self._keys) < self.size:
            place = len(self._keys)
            self._keys.append(key)
            self._began.append(now)
            self._gap.append(math.nan)
            self._echo.append(echo)
        elif self._random.random() * self._rate < self.size:
            place = int(self._random.random() * self.size)
            if math.isnan(self._gap[place]):
                del self._open[self._keys[place]]
            self._keys[place], self._began[place] = key, now
            self._gap[place], self._echo[place] = math.nan, echo
        else:
            return
        self._open[key] = place

    def sums(self) -> Sums:
        """Of the gaps that ended."""
        return Sums.of([gap for gap in self._gap if not math.isnan(gap)])

    def look(self, now: float) -> Seen:
        """What is known now."""
        gaps, ages = np.array(self._gap, np.float64), now - np.array(self._began, np.float64)
        ended = ~np.isnan(gaps)
        whole = gaps[ended]
        old = ages >= (whole.max() if whole.size else math.inf)
        most = float(np.quantile(whole, 0.9)) if whole.size else math.inf
        return Seen(
            whole,
            np.maximum(ages[~ended], 0.0),
            gaps[ended & old],
            _share(ended, old),
            _share(ended, ages >= most) if whole.size and ages.max() >= 3.0 * most else None,
        )


def _share(ended: npt.NDArray[np.bool_], old: npt.NDArray[np.bool_]) -> float:
    return float((ended & old).sum() / old.sum()) if old.any() else 0.0
