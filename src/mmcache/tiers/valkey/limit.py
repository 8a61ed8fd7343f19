"""How long one call may take, all in all."""

from __future__ import annotations

from collections.abc import Callable

from mmcache.model.errors import TierError

SLOWEST = 16 << 20
"""Bytes a second: a call that moves much may take so much longer than its timeout as this rate allows. A server that
drips single bytes gains nothing by it; one that sends 64 MiB in good order has four seconds more."""


class LateError(TierError):
    """Time was up."""


class Limit:
    """The end of a call: its timeout after its start, and a little later for every byte that has really moved."""

    __slots__ = ("_end", "_monotonic", "moved")

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + seconds
        self.moved = 0
        """Bytes sent and received by this call."""

    def left(self) -> float:
        """Seconds; 0 or less when it is over."""
        return self._end + self.moved / SLOWEST - self._monotonic()

    def part(self, share: float) -> Limit:
        """A limit for one of several things that must all be done within this one."""
        return Limit(self._monotonic, share * self.left())
