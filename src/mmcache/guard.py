"""Net benefit: a cache that costs more than it saves steps aside, says so, and looks again later. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class NetBenefit:
    """Compares the seconds that lookups cost with the compute seconds that their hits saved, window by window.

    After `window` lookups in which lookups cost more than hits saved, the next `pause` calls are bypassed; then
    it looks again. Not thread-safe by design: a lost update moves a decision by one call.
    """

    window: int = 256
    pause: int = 2048
    _lookups: int = 0
    _spent: float = 0.0
    _saved: float = 0.0
    _skip: int = 0

    def bypass(self) -> bool:
        """Whether this call should not be looked up."""
        if self._skip > 0:
            self._skip -= 1
            return True
        return False

    def observe(self, lookup_seconds: float, saved_seconds: float) -> bool:
        """One lookup happened; `saved_seconds` is 0 for a miss. True when it decides to step aside."""
        self._lookups += 1
        self._spent += lookup_seconds
        self._saved += saved_seconds
        if self._lookups < self.window:
            return False
        losing = self._spent > self._saved
        self._lookups, self._spent, self._saved = 0, 0.0, 0.0
        self._skip = self.pause if losing else 0
        return losing
