"""An access log → which policy, how much memory and which lifetime would serve it best, and what that saves.

Every figure is a replay of the log through the product's own objects, from an empty cache. A long log is thinned to the
requests for a hashed sample of its blocks (SHARDS), and memory with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmcache import plugins
from mmcache.lab.advice.lifetimes import LARGEST_SHARE, LEAST_SECONDS, LifetimePoint, lifetime_named, lifetimes
from mmcache.lab.advice.tenants import TenantShare, tenant_shares
from mmcache.lab.bounds import flow_bound
from mmcache.lab.replay import Replayed, policy_named, replay, score
from mmcache.lab.table import Progress, silent
from mmcache.lab.traces import Trace
from mmcache.model.errors import InvalidInputError
from mmcache.tiers.memory import ENTRY_OVERHEAD_BYTES

SIZES = (0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 65.0, 100.0)
"""Per cent of all bytes of the log: the sizes of memory that are tried."""
MOST_REPLAYED = 150_000
"""Requests; a longer log is thinned to about so many."""
LEAST_BLOCKS = 2000
"""A sample has about so many blocks at least, or all: of few blocks, one more or less decides."""
DEFAULT, SAME = "auto", 0.01
"""The product's default policy is recommended unless another saves more than this share of the cost beside it."""


@dataclass(frozen=True)
class Point:
    """A policy in some memory."""

    memory: int
    """Bytes, of the whole log (not of the sample)."""
    hit_ratio: float
    byte_hit_ratio: float
    saved: float
    """0…1, of the cost."""
    held_out: float
    """The same over the last 30 % of the log, when the cache is warm."""


@dataclass(frozen=True)
class Study:
    """What was found. Ratios are 0…1; `memory` includes what the tier takes a block besides its payload."""

    name: str
    requests: int
    blocks: int
    footprint: int
    """Bytes of all blocks, with what the memory tier adds to each."""
    seconds: float
    """Length of the log."""
    cost: float
    """Seconds of compute without a cache."""
    traffic: int
    """Bytes asked for."""
    rate: float
    """Share of the blocks that was replayed; 1 = all."""
    notes: tuple[str, ...]
    curves: dict[str, tuple[Point, ...]]
    """By policy, memory rising."""
    policy: str
    """Recommended."""
    memory: int
    """Recommended, bytes."""
    at: dict[str, Point]
    """Each policy in the recommended memory."""
    bound: float
    """No cache of that size can save more than this share of the cost."""
    lifetimes: tuple[LifetimePoint, ...]
    """Empty where the log has no times."""
    ttl: float | str | None
    """Recommended: seconds, the name of a lifetime, or None = for ever."""
    tenants: tuple[TenantShare, ...]
    """Empty where there is one."""
    timed: bool
    """Whether the log had times."""
    best: Point
    """What is recommended: the policy in that memory, with that lifetime."""

    @property
    def saved_seconds(self) -> float:
        """Of compute, over the log."""
        return self.best.saved * self.cost

    @property
    def saved_bytes(self) -> float:
        """Not computed or fetched again, over the log."""
        return self.best.byte_hit_ratio * self.traffic

    def a_day(self, amount: float) -> float | None:
        """`amount` over the log, a day; None where the log is too short to say."""
        return amount * 86_400 / self.seconds if self.timed and self.seconds >= LEAST_SECONDS else None


def study(
    trace: Trace,
    *,
    policies: Sequence[str] = (),
    memory: int | None = None,
    fresh_within: float | None = None,
    exact: bool = False,
    progress: Progress = silent,
) -> Study:
    """Replay `trace` through `policies` (default: all that are registered).

    memory: bytes, where they are given and not to be recommended. fresh_within: seconds; no answer may be older. exact:
    never thin the log. Raises `InvalidInputError` for a log in which nothing is asked for twice, `UnknownPluginError`.
    """
    enough = max(MOST_REPLAYED / max(1, len(trace)), LEAST_BLOCKS / max(1, len(trace.sizes)))
    rate = 1.0 if exact else min(1.0, enough)
    thin = trace.sampled(rate)
    if len(thin) == len(thin.sizes):
        raise InvalidInputError(
            f"in {trace.name} no key is asked for twice, so no cache can help; is the key column right?"
        )
    charged = replace(thin, sizes=thin.sizes + ENTRY_OVERHEAD_BYTES)
    names = tuple(policies) or tuple(plugins.names("policies"))
    footprint = int((trace.sizes + ENTRY_OVERHEAD_BYTES).sum())
    scale = footprint / charged.footprint
    share = min(1.0, LARGEST_SHARE * scale)  # of the sample's memory: what is half of it may be little of the real one
    least = math.ceil(float(np.median(charged.sizes)) / share)  # less would keep hardly any block
    limits = sorted({max(least, charged.capacity(percent)) for percent in SIZES})
    steps, done = len(names) * (len(limits) + 1), 0

    def point(name: str, limit: int) -> Point:
        nonlocal done
        progress("replaying policies", done, steps)
        done += 1
        return _point(thin, replay(charged, policy_named(name), limit, largest_share=share), limit, scale)

    curves = {name: tuple(point(name, limit) for limit in limits) for name in names}
    leader = max(names, key=lambda name: sum(one.saved for one in curves[name]))
    limit = int(memory / scale) if memory is not None else limits[knee([one.saved for one in curves[leader]], limits)]
    at = {name: point(name, limit) for name in names}
    progress("replaying policies", steps, steps)
    policy = max(names, key=lambda name: at[name].saved)
    if DEFAULT in at and at[policy].saved - at[DEFAULT].saved <= SAME:
        policy = DEFAULT
    timed = not any(note.startswith("no times") for note in trace.notes) and thin.seconds > 0
    points, ttl = lifetimes(charged, policy, limit, fresh_within, progress, share) if timed else ((), fresh_within)
    lifetime = lifetime_named(ttl) if timed and ttl is not None else None
    final = replay(charged, policy_named(policy), limit, lifetime=lifetime, largest_share=share)
    notes = [*trace.notes]
    if too_large := int((charged.sizes > limit * share).sum()):
        notes.append(f"{too_large} of {len(charged.sizes)} blocks are larger than half of that memory and never kept")
    whole = score(trace, np.zeros(len(trace), np.bool_))
    return Study(
        trace.name, len(trace), len(trace.sizes), footprint, trace.seconds, whole.cost, whole.bytes,
        len(thin.sizes) / len(trace.sizes), tuple(notes), curves, policy, math.ceil(limit * scale), at,
        flow_bound(charged, limit), points, ttl, tenant_shares(charged, final.hits, limit, scale), timed,
        _point(thin, final, limit, scale),
    )  # fmt: skip


def _point(thin: Trace, found: Replayed, limit: int, scale: float) -> Point:
    whole, end = score(thin, found.hits), score(thin, found.hits, thin.held_out)
    return Point(math.ceil(limit * scale), whole.hit_ratio, whole.byte_hit_ratio, whole.saved, end.saved)


def knee(saved: Sequence[float], limits: Sequence[int]) -> int:
    """The place where more memory begins to save little: farthest above the line from the first point (nothing for
    nothing) to the last, both axes scaled to 1 (Kneedle: Satopää et al., 2011)."""
    most, widest = max(saved) or 1.0, max(limits)
    return max(range(len(limits)), key=lambda place: (saved[place] / most - limits[place] / widest, -place))
