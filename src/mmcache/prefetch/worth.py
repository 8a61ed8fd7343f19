"""`Worth`: whether prefetching pays, by the share of what was brought that was asked for. Pure: time is an argument.

    Proving ──enough used──▸ Trusted ──share falls──▸ Paused ──pause over──▸ Proving ──too little used──▸ Paused …

Nothing is believed before it is shown: at first, and after each pause, only a sample is brought, and no more until it
is clear what became of it. A pause doubles each time that its sample fails. So on a stream that cannot be foreseen it
brings one sample a pause, however fast the stream is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, isfinite, sqrt

from mmcache.model.errors import SettingsError


class Trust(StrEnum):
    PROVING = "proving"
    TRUSTED = "trusted"
    PAUSED = "paused"


@dataclass(frozen=True)
class WorthSettings:
    """When it pays. Blocks, unless said otherwise."""

    least_use: float = 0.2
    """Share (0…1) of what is brought that must be asked for."""
    first: int = 32
    """The first sample; and how many must be settled before trust can end."""
    sample: int = 16
    """Each later one."""
    window: int = 128
    """The last settled ones, by which trust is kept."""
    ahead: int = 512
    """Brought and not settled, at most."""
    pause: float = 60.0
    """Seconds; doubled each time running."""
    longest_pause: float = 3600.0
    """Seconds."""
    z: float = 1.2816
    """Trust ends when the share is below `least_use` with this one-sided confidence (quantile of N(0, 1); 90 %)."""

    def __post_init__(self) -> None:
        """Raises `SettingsError`."""
        if not (0 < self.least_use < 1 and isfinite(self.z) and self.z >= 0):
            raise SettingsError("least_use is a share between 0 and 1, and z 0 or more")
        if not (self.sample >= 1 and 1 <= self.first <= self.window <= self.ahead):
            raise SettingsError("samples have at least one block, and first ≤ window ≤ ahead")
        if not 0 < self.pause <= self.longest_pause < inf:
            raise SettingsError("a pause is a number of seconds above 0, and the longest at least that")


@dataclass(slots=True, eq=False)
class Block:
    """One that was brought. What becomes of it is told to `Worth.settle`."""

    epoch: int
    used: bool | None = None
    """None: not settled."""


class Worth:
    """Counts what was brought and what became of it."""

    def __init__(self, settings: WorthSettings = WorthSettings()) -> None:
        self.settings = settings
        self.trust = Trust.PROVING
        self.paused_until = -inf
        self._epoch = 0  # blocks of an earlier one are settled for the statistics only
        self._failed = 0  # samples, running
        self._trusted = 0  # settled since trust began
        self._begin(settings.first)

    def _begin(self, sample: int) -> None:
        self._sample, self._brought, self._ahead = sample, 0, 0
        self._settled: deque[Block] = deque(maxlen=self.settings.window)

    def room(self, now: float) -> int:
        """How many more blocks may be brought now."""
        if self.trust is Trust.PAUSED and now >= self.paused_until:
            self.trust = Trust.PROVING
            self._begin(self.settings.sample)
        if self.trust is Trust.PAUSED:
            return 0
        if self.trust is Trust.PROVING:
            return max(0, self._sample - self._brought)
        return max(0, self.settings.ahead - self._ahead)

    def brought(self) -> Block:
        """A block was brought."""
        self._brought += 1
        self._ahead += 1
        return Block(self._epoch)

    def settle(self, block: Block, used: bool, now: float) -> bool:
        """It was asked for, or will hardly be; one that was given up may still be `used` later. True: that made it
        pause."""
        if block.used is None:
            fresh = True
        elif used and not block.used:
            fresh = False
        else:
            return False
        block.used = used
        if block.epoch != self._epoch:
            return False
        if fresh:
            self._ahead -= 1
            self._settled.append(block)
            if self.trust is Trust.TRUSTED:
                self._trusted += 1
                if self._trusted >= self.settings.window:
                    self._failed = 0
        return self._judged(now)

    def _judged(self, now: float) -> bool:
        used, settled, least = self.used, len(self._settled), self.settings.least_use
        if self.trust is Trust.PROVING:
            needed = ceil(least * self._sample)
            if used >= needed:
                self.trust, self._trusted = Trust.TRUSTED, 0
            return settled - used > self._sample - needed and self._pause(now)
        if self.trust is Trust.TRUSTED and settled >= self.settings.first:
            return wilson(used, settled, self.settings.z)[1] < least and self._pause(now)
        return False

    def _pause(self, now: float) -> bool:
        settings = self.settings
        self.trust = Trust.PAUSED
        self.paused_until = now + min(settings.longest_pause, settings.pause * 2.0 ** min(self._failed, 30))
        self._failed += 1
        self._epoch += 1
        return True

    @property
    def used(self) -> int:
        """Of those settled last."""
        return sum(block.used is True for block in self._settled)

    @property
    def settled(self) -> int:
        """In the window."""
        return len(self._settled)

    @property
    def share(self) -> float | None:
        """Used of settled; None: nothing is settled."""
        return self.used / self.settled if self._settled else None


def wilson(used: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson 1927); (0, 1) of nothing."""
    if count == 0:
        return 0.0, 1.0
    share, square = used / count, z * z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = z * sqrt(share * (1 - share) / count + square / (4 * count * count)) / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)
