"""What a lifetime costs and buys on a log: hits lost against how old the answers are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmcache import plugins
from mmcache.lab.replay import policy_named, replay, score
from mmcache.lab.table import Progress, silent
from mmcache.lab.traces import Trace
from mmcache.settings import MemorySettings
from mmcache.ttl.base import Lifetime
from mmcache.ttl.fixed import FixedTTL

STEPS = 8
KEPT = 0.99
"""A lifetime that saves this share of what an endless one saves costs nothing."""
SHORTEST = 1.0
"""Seconds."""
LEARNED = "survival"
LARGEST_SHARE = MemorySettings().largest_share
LEAST_SECONDS = 60.0
"""A shorter log says nothing of a lifetime, nor of a day."""


@dataclass(frozen=True)
class LifetimePoint:
    """One lifetime."""

    ttl: float | str | None
    """Seconds, a registered name, or None = for ever."""
    hit_ratio: float
    saved: float
    """0…1, of the cost."""
    mean_age: float
    """Seconds since what a hit returned was computed."""
    old_age: float
    """Nineteen of twenty hits are younger, seconds: how stale an answer may be."""


def lifetimes(
    trace: Trace,
    policy: str,
    limit_bytes: int,
    fresh_within: float | None = None,
    progress: Progress = silent,
    largest_share: float = LARGEST_SHARE,
) -> tuple[tuple[LifetimePoint, ...], float | str | None]:
    """The curve, the endless lifetime last, and the lifetime that is recommended.

    Recommended is `fresh_within` where it is given; else the shortest that costs nothing, or the learned one where that
    costs nothing either and its answers are younger. A log shorter than `LEAST_SECONDS`, or in which nothing is saved,
    recommends none.
    """
    grid = [float(f"{one:.2g}") for one in np.geomspace(max(SHORTEST, trace.seconds / 2000), trace.seconds / 2, STEPS)]
    tried: list[tuple[float | str | None, Lifetime]] = [
        (ttl, FixedTTL(ttl)) for ttl in sorted({*grid, *([fresh_within] if fresh_within is not None else [])})
    ]
    if LEARNED in plugins.names("ttl"):
        tried.append((LEARNED, lifetime_named(LEARNED)))
    tried.append((None, FixedTTL(None)))
    points = []
    for done, (ttl, lifetime) in enumerate(tried):
        progress("replaying lifetimes", done, len(tried))
        points.append(_point(trace, policy, limit_bytes, ttl, lifetime, largest_share))
    progress("replaying lifetimes", len(tried), len(tried))
    if fresh_within is not None:
        return tuple(points), fresh_within
    return tuple(points), _recommended(points) if trace.seconds >= LEAST_SECONDS and points[-1].saved else None


def lifetime_named(ttl: float | str | None) -> Lifetime:
    """A new lifetime of so many seconds, or of a registered name; None = for ever."""
    if isinstance(ttl, str):
        made: Lifetime = plugins.load("ttl", ttl)()
        return made
    return FixedTTL(ttl)


def _point(
    trace: Trace, policy: str, limit_bytes: int, ttl: float | str | None, lifetime: Lifetime, largest_share: float
) -> LifetimePoint:
    found = replay(trace, policy_named(policy), limit_bytes, lifetime=lifetime, largest_share=largest_share)
    sums = score(trace, found.hits)
    ages = found.ages[found.hits] if found.ages is not None else np.zeros(0)
    mean, old = (float(ages.mean()), float(np.quantile(ages, 0.95))) if len(ages) else (0.0, 0.0)
    return LifetimePoint(ttl, sums.hit_ratio, sums.saved, mean, old)


def _recommended(points: list[LifetimePoint]) -> float | str | None:
    enough = KEPT * points[-1].saved
    free = [one for one in points if one.saved >= enough]
    fixed = next(one for one in free if not isinstance(one.ttl, str))
    learned = next((one for one in free if isinstance(one.ttl, str)), None)
    return learned.ttl if learned is not None and learned.old_age < fixed.old_age else fixed.ttl
