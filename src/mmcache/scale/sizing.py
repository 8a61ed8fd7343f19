"""How many shards a load is to have. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from mmcache.scale.bursts import Load
from mmcache.scale.spec import ClusterSpec

FULL = 0.8
"""A shard goes only where the others would be filled no more than so far: else it would soon be back (hysteresis)."""


@dataclass(frozen=True)
class Wanted:
    """A decision."""

    shards: int
    reason: str
    """One word in CamelCase: `Fits`, `Burst`, `Load`, `AtMaximum`, `CoolDown`, `Quiet`, `MinShards`, `MaxShards`,
    `UnderWay`."""
    message: str
    """A sentence for people."""


def wanted(
    spec: ClusterSpec, load: Load | None, shards_now: int, changed_at: float, at: float, served: int | None = None
) -> Wanted:
    """The number of shards to go for.

    `shards_now` is what was last decided, at `changed_at` (seconds, as `at`). `served`: how many have slots now, where
    that is known; nothing is added or taken away before the last decision has been carried out. `load` None: nothing is
    known.
    """
    if shards_now < spec.min_shards:
        return Wanted(spec.min_shards, "MinShards", f"minShards is {spec.min_shards}")
    if shards_now > spec.max_shards:
        return Wanted(spec.max_shards, "MaxShards", f"maxShards is {spec.max_shards}")
    if load is None:
        return Wanted(shards_now, "Fits", "nothing is known of the load yet")
    rate = max(load.qps, load.latest) if load.burst else load.qps
    need = _shards(spec, rate)
    shards = "1 shard" if need == 1 else f"{need} shards"
    said = f"{rate:,.0f} requests a second need {shards} of {1000 * spec.qps_threshold:,.0f}"
    if need > shards_now:
        return _more(spec, load, shards_now, served, need, said)
    if served is not None and served > shards_now:
        return Wanted(shards_now, "UnderWay", f"{said}; first those that are too many are to go")
    return _fewer(spec, load, shards_now, changed_at, at, said)


def carried(spec: ClusterSpec) -> float:
    """Requests a second that the most shards are to carry."""
    return 1000 * spec.qps_threshold * spec.max_shards


def _shards(spec: ClusterSpec, rate: float) -> int:
    return ceil(rate / (1000 * spec.qps_threshold))


def _more(spec: ClusterSpec, load: Load, now: int, served: int | None, need: int, said: str) -> Wanted:
    if now == spec.max_shards:
        return Wanted(now, "AtMaximum", f"{said}; maxShards is {spec.max_shards}")
    if served is not None and served < now:
        return Wanted(now, "UnderWay", f"{said}; first the {now} that were decided on are to be there")
    shards = min(need, now + spec.burst.most_shards_a_step, spec.max_shards)
    reason = "Burst" if load.burst else "Load"
    cut = "" if shards == need else f"; maxShards is {spec.max_shards}" if shards == spec.max_shards else (
        f"; one step adds at most {spec.burst.most_shards_a_step}")  # fmt: skip
    usual = f", {load.qps / load.baseline:.1f} times what is usual" if load.burst and load.baseline else ""
    return Wanted(shards, reason, f"{said}{usual}{cut}")


def _fewer(spec: ClusterSpec, load: Load, now: int, changed_at: float, at: float, said: str) -> Wanted:
    peak = inf if load.peak is None else max(load.peak, load.qps)
    if now == spec.min_shards or load.burst or peak > FULL * (now - 1) * 1000 * spec.qps_threshold:
        return Wanted(now, "Fits", said)
    quiet = spec.burst.quiet_seconds
    if 0 <= at - changed_at < quiet:
        return Wanted(now, "CoolDown", f"{said}; the last change is less than {quiet:g} s ago")
    return Wanted(now - 1, "Quiet", f"{said}; it was never above {peak:,.0f} in the last {quiet:g} s")
