"""A node that failed is left alone, then tried by one caller at a time. Pure: the time is an argument."""

from __future__ import annotations

LONGEST = 16
"""By how much the rest may grow, in rests."""


class Breaker:
    """Closed: all may ask. Open: nobody may; after a rest one may, and if it fails, the rest doubles.

    Threads may share it: a race lets one caller more through, or counts one failure twice within one rest.
    """

    __slots__ = ("_probing", "_rest", "_until", "_wait", "open", "why")

    def __init__(self, rest_seconds: float) -> None:
        self._rest = self._wait = rest_seconds
        self._until = float("-inf")
        self._probing = False
        self.open = False
        self.why = ""

    def allows(self, now: float) -> bool:
        """Whether a caller may ask at `now` (seconds). One that may while it is open is a probe, and must report."""
        if not self.open:
            return True
        if now < self._until:
            return False
        self._until = now + self._wait  # a probe that never reports holds the others up no longer than a failed one
        self._probing = True
        return True

    def due(self, now: float) -> bool:
        """Whether `allows` would be true."""
        return not self.open or now >= self._until

    def failed(self, now: float, why: str) -> bool:
        """A caller got no answer. Whether that opened it."""
        self.why = why
        if not self.open:
            self.open, self._wait, self._probing = True, self._rest, False
            self._until = now + self._wait
            return True
        if self._probing:  # else it was under way when the node began to rest
            self._wait, self._probing = min(2 * self._wait, LONGEST * self._rest), False
            self._until = now + self._wait
        return False

    def served(self) -> None:
        """A caller got its answer."""
        self.open = False
