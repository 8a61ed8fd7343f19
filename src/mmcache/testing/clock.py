"""A clock that moves only when told to."""

from __future__ import annotations

import threading


class FakeClock:
    """Satisfies `Clock`. No test sleeps: `advance` instead.

    >>> clock = FakeClock()
    >>> clock.advance(5)
    >>> clock.monotonic(), clock.wall()
    (1005.0, 1800000005.0)
    """

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_800_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """Seconds; see `Clock.monotonic`."""
        return self._monotonic

    def wall(self) -> float:
        """Unix seconds; see `Clock.wall`."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks. Also serves where a `sleep` is injected."""
        if seconds < 0:
            raise ValueError("time never runs backwards; a wall clock may step: `step_wall`")
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as a time server does; the monotonic clock does not notice."""
        with self._lock:
            self._wall += seconds
