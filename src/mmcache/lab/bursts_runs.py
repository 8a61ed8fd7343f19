"""A rule watches a stream: what it found, when, and what it cried for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcache.lab.bursts_rules import Rule
from mmcache.lab.bursts_truth import Burst
from mmcache.lab.traces.trace import Floats

STEP = 5.0
"""Seconds between two looks."""
GRACE = 60.0
"""An alarm belongs to a burst when it begins within it or so much later: the mean of 60 s lags."""
JOINED = 300.0
"""Alarms that are less apart count as one false alarm."""


@dataclass(frozen=True)
class Watched:
    """Alarms as (begin, end), seconds."""

    alarms: tuple[tuple[float, float], ...]
    seconds: float

    def on(self, burst: Burst) -> bool:
        """Whether the alarm was on already when the burst began."""
        return any(begin <= burst.start < end for begin, end in self.alarms)

    def delay(self, burst: Burst) -> float | None:
        """Seconds from the burst's begin to an alarm that begins by it; None: there is none."""
        begins = [begin for begin, _ in self.alarms if burst.start < begin <= burst.end + GRACE]
        return begins[0] - burst.start if begins else None

    def false_alarms(self, bursts: Sequence[Burst], since: float = 0.0) -> int:
        """Alarms that begin at no burst."""
        count, last = 0, -JOINED
        for begin, end in self.alarms:
            known = any(burst.start <= begin <= burst.end + GRACE for burst in bursts)
            if not known and begin >= since:
                count += begin - last >= JOINED
                last = end
        return count


def watch(rule: Rule, counts: Floats, start: float = 0.0) -> Watched:
    """`counts`: requests of each step. start: Unix seconds of the stream's beginning."""
    alarms: list[tuple[float, float]] = []
    begun: float | None = None
    at = 0.0
    for count in counts.tolist():
        at += STEP
        on = rule.observe(start + at, count / STEP)
        if on and begun is None:
            begun = at
        elif not on and begun is not None:
            alarms.append((begun, at))
            begun = None
    if begun is not None:
        alarms.append((begun, at + STEP))
    return Watched(tuple(alarms), at)
