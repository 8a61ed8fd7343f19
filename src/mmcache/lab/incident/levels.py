"""Generated points of metrics for the same night: what the tiers hold, and what they evict."""

from __future__ import annotations

from collections.abc import Iterator

from mmcache.dashboard.points import Point
from mmcache.lab.incident.spans import FLOOD_AT, FLOOD_ENDS, INSTANCES, Night

LIMITS = {"memory": 2 << 30, "disk": 64 << 30}
BLOCK = 48_000
EVERY = 30


def points(night: Night) -> Iterator[Point]:
    """One value a series and half a minute."""
    for place, instance in enumerate(INSTANCES):
        used, evicted = {"memory": 0.72, "disk": 0.41}, dict.fromkeys(LIMITS, 0)
        for second in range(0, int(night.hours * 3600), EVERY):
            flooded = FLOOD_AT <= second < FLOOD_ENDS
            for tier, limit in LIMITS.items():
                growth = 4e-3 if flooded else 1e-4 * (1 + place)
                used[tier] = min(1.0, used[tier] + growth * (1 if tier == "memory" else 0.05))
                if used[tier] >= 1.0:
                    evicted[tier] += 900 if flooded else 12
                labels = f'{{"tier":"{tier}"}}'
                values = {
                    "mmcache.tier.used": used[tier] * limit,
                    "mmcache.tier.limit": limit,
                    "mmcache.tier.blocks": used[tier] * limit // BLOCK,
                    "mmcache.evictions": evicted[tier],
                }
                at = int(night.midnight) + second
                for name, value in values.items():
                    yield Point((name, "mmcache", instance, labels, False), at, float(value))
