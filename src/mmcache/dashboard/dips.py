"""`dip`: which two windows to compare: the fall that lies in what somebody looks at, and what was before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mmcache.dashboard.rows import Window
from mmcache.dashboard.steps import Tally, steps

LEAST_FALL = 0.01
"""Of the hit ratio."""
_NEARLY = 0.15
"""Of the fall; who is not farther below the best is no part of it."""


@dataclass(frozen=True)
class _Segment:
    start: float
    end: float
    hits: float
    lookups: float

    @property
    def ratio(self) -> float:
        return self.hits / self.lookups if self.lookups else 1.0


def dip(series: Sequence[Tally], asked: Window, step: float) -> tuple[Window, Window]:
    """Baseline and now. Without a fall that chance does not explain: what is asked for, and as long before it.

    series: buckets of `step` seconds, ascending, best from as long before `asked` as it is long. The fall is the one
    that cost most hits; `now` reaches from its start to where the ratio has come half-way back, the baseline is the
    stretch before it in which nothing changed. Where nothing was looked up before `asked`, its first half is compared
    with its second.
    """
    found = _fall(_segments(series, step), asked)
    if found is not None:
        return found
    before = Window(asked.start - asked.seconds, asked.start)
    if any(before.start <= one.t < before.end and one.lookups for one in series):
        return before, asked
    middle = asked.start + asked.seconds / 2
    return Window(asked.start, middle), Window(middle, asked.end)


def _segments(series: Sequence[Tally], step: float) -> list[_Segment]:
    cuts = [0, *steps(series), len(series)]
    return [
        _Segment(part[0].t, part[-1].t + step, sum(one.hits for one in part), sum(one.lookups for one in part))
        for part in (series[start:end] for start, end in pairwise(cuts))
        if part
    ]


def _fall(parts: Sequence[_Segment], asked: Window) -> tuple[Window, Window] | None:
    best: tuple[float, int, int] | None = None
    for low in range(1, len(parts)):
        if parts[low].end <= asked.start or parts[low].start >= asked.end:
            continue
        high = max(range(low), key=lambda at: (parts[at].lookups > 0, parts[at].ratio, at))  # silence is no height
        down = parts[high].ratio - parts[low].ratio
        if down >= LEAST_FALL and (best is None or down * parts[low].lookups > best[0]):
            best = down * parts[low].lookups, high, low
    if best is None:
        return None
    _, high, low = best
    middle = (parts[high].ratio + parts[low].ratio) / 2
    quiet_from = parts[high].ratio - _NEARLY * (parts[high].ratio - parts[low].ratio)
    first, last = low, low
    while parts[first - 1].ratio < quiet_from:  # it fell in several steps, for several causes
        first -= 1
    while last + 1 < len(parts) and parts[last + 1].ratio < middle and parts[last + 1].start < asked.end:
        last += 1
    quiet = parts[first - 1]
    end = min(parts[last].end, max(asked.end, parts[first].start + 1))
    return Window(quiet.start, quiet.end), Window(parts[first].start, end)
