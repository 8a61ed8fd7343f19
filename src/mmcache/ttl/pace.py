"""How often one block is used, as far as seen, and what lifetime that deserves where others are used at another pace.

Uses at rate λ, stored again at the first use after each end, hit h = λT/(1 + λT) of the time; if sources change at a
rate that is small against 1/T and the same for all, stale answers are in proportion to λ·h·T/2. The most hits for a
number of stale answers come from equal exchange everywhere: d(λh)/dT ÷ d(λhT/2)/dT = 2/(2T + λT²), so 2T + λT² is the
same for all blocks. The busy live shorter, about as 1/√λ (they are soon asked for again); the idle longer.
"""

from __future__ import annotations

import math

from mmcache.model.key import Key

CARRIED = 0.5
"""What was seen of a block counts half with each time it is stored anew."""


class Paces:
    """Uses and seconds of at most `most` blocks, those stored last. O(1) a call."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._seen: dict[Key, tuple[float, float]] = {}  # (uses, since when)

    def use(self, key: Key) -> None:
        """A known block was used."""
        if (seen := self._seen.get(key)) is not None:
            self._seen[key] = seen[0] + 1.0, seen[1]

    def store(self, key: Key, now: float) -> tuple[float, float]:
        """A block is stored, because somebody asked: (uses, seconds) seen of it so far; (0, 0) for a new one."""
        seen = self._seen.pop(key, None)
        uses, seconds = (0.0, 0.0) if seen is None else (seen[0] + 1.0, max(0.0, now - seen[1]))
        if len(self._seen) >= self.most:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = CARRIED * uses, now - CARRIED * seconds
        return uses, seconds


def fair_share(lifetime: float, gap: float, uses: float, seconds: float) -> float:
    """The lifetime of a block with so many `uses` in `seconds`, where a block used every `gap` seconds gets `lifetime`.

    Its rate is shrunk towards the usual one, as if one more use had been seen in one more `gap`.
    """
    if not (gap > 0.0 and lifetime > 0.0):
        return lifetime
    rate = (uses + 1.0) / (seconds + gap)
    exchange = lifetime * (2.0 + lifetime / gap)
    return exchange / (1.0 + math.sqrt(1.0 + rate * exchange))
