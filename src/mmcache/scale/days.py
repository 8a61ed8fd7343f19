"""What a day usually looks like: the rate by the time of day, as the median over the last days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor
from statistics import median

DAY_SECONDS = 86_400.0
PARTS = 48
"""Of a day: half an hour each."""
PART_SECONDS = DAY_SECONDS / PARTS
DAYS = 5
"""That are remembered of each part: with the median of them, one odd day changes nothing."""
LATE = 4
"""So many parts later what was seen becomes usual: today's burst must not explain itself."""
LARGEST_CHANGE = 2.0
"""Up or down within the baseline's memory. Where the level changed for good, days before and after it disagree."""
_MOST_MINUTES = 32
_MINUTE = 60.0


@dataclass
class Days:
    """Fed with mean rates, oldest first. UTC; where clocks are changed, the day is an hour off until relearned."""

    usual: dict[int, list[float]] = field(default_factory=dict)
    """By part of the day, the last days' rates a second, oldest first."""
    fresh: list[tuple[int, float]] = field(default_factory=list)
    """(part, rate) of the last two hours."""
    part: int = -1
    """Which one is being watched; -1: none yet."""
    minutes: list[float] = field(default_factory=list)
    """The rates of its minutes so far."""
    open: tuple[float, float] = (0.0, 0.0)
    """(seconds, requests) of the minute that is not full."""

    def add(self, at: float, seconds: float, rate: float) -> None:
        """The mean `rate` of `seconds` around `at`."""
        if seconds > PART_SECONDS:
            self.add(at - seconds / 4, seconds / 2, rate)
            self.add(at + seconds / 4, seconds / 2, rate)
            return
        part = int(at % DAY_SECONDS // PART_SECONDS) % PARTS
        if part != self.part:
            self._close()
            self.part = part
        seconds, requests = self.open[0] + seconds, self.open[1] + seconds * rate
        if seconds < _MINUTE:
            self.open = (seconds, requests)
            return
        self.open = (0.0, 0.0)
        many = min(round(seconds / _MINUTE), _MOST_MINUTES)
        self.minutes = [*self.minutes, *[short(requests / seconds)] * many][-_MOST_MINUTES:]

    def _close(self) -> None:
        if len(self.minutes) * _MINUTE >= PART_SECONDS / 2:
            self.fresh.append((self.part, short(median(self.minutes))))
        self.minutes, self.open = [], (0.0, 0.0)
        while len(self.fresh) > LATE:
            part, rate = self.fresh.pop(0)
            self.usual[part] = [*self.usual.get(part, []), rate][-DAYS:]

    def carried(self, rates: Sequence[tuple[float, float]], now: float) -> list[float]:
        """(time, rate) each, as they would be now after what the day usually does from then on. Unchanged where no day
        is known."""
        medians: dict[int, float] = {}
        today = self._rate(now, medians)
        if today is None:
            return [rate for _, rate in rates]
        found = []
        for then, rate in rates:
            before = self._rate(then, medians)
            change = 1.0 if before is None else min(max(today / before, 1 / LARGEST_CHANGE), LARGEST_CHANGE)
            found.append(rate * change)
        return found

    def rate(self, at: float) -> float | None:
        """What is usual at this time of day, between the middles of two parts; None: unknown."""
        return self._rate(at, {})

    def _rate(self, at: float, medians: dict[int, float]) -> float | None:
        """medians: of parts, as far as they are known already."""
        place = at % DAY_SECONDS / PART_SECONDS - 0.5
        low = floor(place)
        ends = []
        for part in (low % PARTS, (low + 1) % PARTS):
            if part not in medians:
                medians[part] = median(self.usual.get(part) or [0.0])
            ends.append(medians[part])
        if ends[0] <= 0 or ends[1] <= 0:
            return None
        return float(ends[0] * (ends[1] / ends[0]) ** (place - low))


def short(value: float) -> float:
    """To five digits, so that what is saved is small and what is restored is the same."""
    return float(f"{value:.5g}")
