"""Time as a value that is passed in. Deadlines are monotonic seconds; wall time survives reboots only."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that never steps, one that other machines understand."""

    def monotonic(self) -> float:
        """Seconds; never steps; shared by all processes of this machine until it reboots."""

    def wall(self) -> float:
        """Unix seconds; may step."""


class SystemClock:
    """The machine's own clocks. The methods are the C functions themselves: no Python frame per call."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
