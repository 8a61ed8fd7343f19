"""Who uses the cache, and whom a quota should hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcache.lab.replay import Hits, score
from mmcache.lab.traces import Trace
from mmcache.settings import Class

BULKY, FRUITLESS = 0.2, 1 / 3
"""A tenant is `batch` when it has more than this share of all bytes, and saves less a byte than this part of the
mean."""


@dataclass(frozen=True)
class TenantShare:
    """One tenant on the log, in the recommended cache."""

    name: str
    requests: float
    """0…1, of all requests."""
    bytes: float
    """0…1, of the bytes of all blocks."""
    hit_ratio: float
    saved: float
    """0…1, of what the cache saves altogether."""
    service: Class
    """Suggested."""
    quota: int | None
    """Suggested, bytes; None = the cache's limit."""


def tenant_shares(trace: Trace, hits: Hits, limit_bytes: int, scale: float) -> tuple[TenantShare, ...]:
    """By what they save, most first; empty where there is only one tenant.

    A log cannot say who is critical: that is left to its owner. `scale`: bytes of memory a byte of the replayed sample.
    """
    if len(trace.tenants) < 2:
        return ()
    total, found = score(trace, hits).cost_saved or 1.0, []
    for place, name in enumerate(trace.tenants):
        sums = score(trace, hits, trace.owners[trace.ids] == place)
        weight = float(trace.sizes[trace.owners == place].sum()) / trace.footprint
        saved = sums.cost_saved / total
        batch = weight > BULKY and saved < FRUITLESS * weight
        quota = math.ceil(max(saved * limit_bytes, float(np.max(trace.sizes))) * scale) if batch else None
        found.append(
            TenantShare(
                name, sums.requests / len(trace), weight, sums.hit_ratio, saved, "batch" if batch else "normal", quota
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda share: -share.saved))
