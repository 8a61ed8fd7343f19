"""Net benefit: where a lookup costs as much as the compute that a hit would save, the cache steps aside. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class NetBenefit:
    """Compares what lookups cost with what computing costs, window by window.

    A miss is no loss by itself: what is cold today may be asked for tomorrow. But where the mean lookup takes longer
    than the mean computation, no hit can ever pay, so the next `pause` calls are bypassed; then it looks again. Not
    thread-safe by design: a lost update moves a decision by one call.
    """

    window: int = 256
    pause: int = 2048
    _lookups: int = 0
    _looking: float = 0.0
    _computing: float = 0.0
    _skip: int = 0

    def bypass(self) -> bool:
        """Whether this call should not be looked up."""
        if self._skip > 0:
            self._skip -= 1
            return True
        return False

    def observe(self, lookup_seconds: float, compute_seconds: float) -> bool:
        """One lookup, and what the computation took that it saved, or did not. True when it decides to step aside."""
        self._lookups += 1
        self._looking += lookup_seconds
        self._computing += compute_seconds
        if self._lookups < self.window:
            return False
        losing = self._looking > self._computing
        self._lookups, self._looking, self._computing = 0, 0.0, 0.0
        self._skip = self.pause if losing else 0
        return losing
