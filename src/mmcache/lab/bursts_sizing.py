"""What shards cost and lack, when somebody decides on their number by the minute and a shard takes a while to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np

from mmcache.lab.bursts_rules import OURS, WINDOW, Plain, Rule
from mmcache.lab.bursts_runs import STEP
from mmcache.lab.bursts_truth import Burst
from mmcache.lab.traces.trace import Floats
from mmcache.scale.bursts import BurstDetector
from mmcache.scale.sizing import wanted
from mmcache.scale.spec import ClusterSpec

FEWEST, MOST = 3, 16
FILLED = 0.7
"""Of what a shard can carry: what it is to carry."""
ROOMY = 0.55
"""The same for a rival that may cost as much as ours does."""
COMES_SECONDS = 60.0
"""Until one more shard carries its part, or one fewer is gone; one at a time."""
HOUR = 3600.0


class Decides(Protocol):
    """A way to size."""

    def decide(self, at: float, rate: float, served: int) -> int:
        """How many shards there should be."""


class Ours:
    """The product's own detector and sizing; or its sizing alone, and another who says when there is a burst."""

    def __init__(self, carries: float, told: Rule | None = None) -> None:
        self._told = told
        self._spec = ClusterSpec(FEWEST, MOST, qps_threshold=FILLED * carries / 1000)
        self._detector = BurstDetector(self._spec.burst)
        self._wanted, self._changed = FEWEST, 0.0

    def decide(self, at: float, rate: float, served: int) -> int:
        """See `Decides`."""
        load = self._detector.observe(at, rate)
        if self._told is not None:
            load = replace(load, burst=self._told.observe(at, rate))
        shards = wanted(self._spec, load, self._wanted, self._changed, at, served).shards
        if shards != self._wanted:
            self._wanted, self._changed = shards, at
        return shards


class Never:
    """Nothing is a burst."""

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        return False


class Rated:
    """By the mean of 60 s alone, `keeps` seconds long never fewer than were needed meanwhile. With 300 s and a
    tolerance of 10 % it is the rule of Kubernetes' HorizontalPodAutoscaler (every 15 s)."""

    def __init__(
        self, carries: float, keeps: float = 0.0, every: float = STEP, tolerance: float = 0.0, filled: float = FILLED
    ) -> None:
        self._per = filled * carries
        self._every, self._tolerance, self._keeps = every, tolerance, keeps
        self._recent: deque[float] = deque(maxlen=int(WINDOW / STEP))
        self._needed: deque[tuple[float, int]] = deque()
        self._last = FEWEST

    def decide(self, at: float, rate: float, served: int) -> int:
        """See `Decides`."""
        self._recent.append(rate)
        if at % self._every:
            return self._last
        ratio = sum(self._recent) / len(self._recent) / (served * self._per)
        need = served if abs(ratio - 1) <= self._tolerance else ceil(ratio * served)
        self._needed.append((at, need))
        while self._needed[0][0] < at - self._keeps:
            self._needed.popleft()
        self._last = min(max(max(n for _, n in self._needed), FEWEST), MOST)
        return self._last


class Literal:
    """One shard more while the mean of 60 s is above 1.5 times the last hour's, one fewer while it is not."""

    def __init__(self) -> None:
        self._rule = Plain(STEP)

    def decide(self, at: float, rate: float, served: int) -> int:
        """See `Decides`."""
        return min(max(served + (1 if self._rule.observe(at, rate) else -1), FEWEST), MOST)


class Always:
    """So many."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def decide(self, at: float, rate: float, served: int) -> int:
        """See `Decides`."""
        return self._shards


class Foreseen:
    """Knows what comes within the next minutes: a bound, as far as one shard at a time goes."""

    def __init__(self, carries: float, counts: Floats) -> None:
        smooth = np.convolve(counts / STEP, np.ones(6) / 6, "same")
        ahead = int(5 * COMES_SECONDS / STEP)
        padded = np.concatenate([smooth, np.full(ahead, smooth[-1])])
        self._need = np.ceil(np.lib.stride_tricks.sliding_window_view(padded, ahead).max(1) / (FILLED * carries))

    def decide(self, at: float, rate: float, served: int) -> int:
        """See `Decides`."""
        return min(max(int(self._need[min(int(at / STEP), len(self._need) - 1)]), FEWEST), MOST)


@dataclass(frozen=True)
class Cost:
    """Of a way to size."""

    shard_hours_a_day: float
    over: float
    """Share (0…1) of the time in which more is asked (mean of 10 s) than the shards can carry."""
    refused: float
    """Share (0…1) of the requests that are above it."""
    changes_a_day: float
    served: Floats
    """By step."""


def ways(carries: float, counts: Floats) -> Mapping[str, Callable[[], Decides]]:
    """By name, ours first. carries: requests a second that one shard can carry."""
    return {
        OURS: lambda: Ours(carries),
        "untold": lambda: Ours(carries, Never()),
        "plain": lambda: Ours(carries, Plain(STEP)),
        "literal": Literal,
        "rate": lambda: Rated(carries),
        "hpa": lambda: Rated(carries, 300.0, 15.0, 0.1),
        "hpa-roomy": lambda: Rated(carries, 300.0, 15.0, 0.1, ROOMY),
        "fewest": lambda: Always(FEWEST),
        "most": lambda: Always(MOST),
        "foreseen": lambda: Foreseen(carries, counts),
    }


WORDS = {
    OURS: "ours",
    "untold": "ours, told of no burst",
    "plain": "ours, told of bursts by 60 s > 1.5 × the last hour",
    "literal": "± 1 by 60 s > 1.5 × the last hour",
    "rate": "by the rate of 60 s alone",
    "hpa": "HorizontalPodAutoscaler's rule",
    "hpa-roomy": f"the same, filled to {ROOMY:.0%}",
    "fewest": f"always {FEWEST}",
    "most": f"always {MOST}",
    "foreseen": "who knows the next 5 minutes",
}


TELLING = (OURS, "untold", "plain", "most")
"""Of `ways`: what it is worth to be told of bursts, and the bound."""


def lacking(counts: Floats, carries: float, burst: Burst) -> Mapping[str, tuple[float, float]]:
    """By `TELLING`: (requests above what the shards can carry, all requests) within a burst."""
    first, last = int(burst.start / STEP), int(burst.end / STEP)
    chosen = ways(carries, counts)
    found = {}
    for name in TELLING:
        served = cost(chosen[name](), counts, carries, 0.0).served[first:last]
        asked = _asked(counts)[first:last]
        found[name] = float(np.maximum(0.0, asked - served * carries).sum()), float(asked.sum())
    return found


def _asked(counts: Floats) -> Floats:
    """A second, as the mean of ten."""
    return np.convolve(counts / STEP, [0.5, 0.5], "same")


def cost(way: Decides, counts: Floats, carries: float, since: float) -> Cost:
    """`counts`: requests of each step. What is before `since` (seconds) teaches, and does not count."""
    served, ready, goal = FEWEST, 0.0, FEWEST
    line = np.empty(len(counts))
    paid = np.empty(len(counts))
    changes = 0
    at = 0.0
    for place, count in enumerate(counts.tolist()):
        at += STEP
        goal = way.decide(at, count / STEP, served)
        if goal == served:
            ready = at
        elif at - ready >= COMES_SECONDS:
            served += 1 if goal > served else -1
            ready = at
            changes += at > since
        line[place] = served
        paid[place] = served + (goal > served)  # the one that comes is paid for
    first = int(since / STEP)
    asked = _asked(counts)[first:]
    above = np.maximum(0.0, asked - line[first:] * carries)
    days = (len(counts) - first) * STEP / 86_400
    return Cost(
        float(paid[first:].sum() * STEP / HOUR / days), float((above > 0).mean()), float(above.sum() / asked.sum()),
        changes / days, line,
    )  # fmt: skip
