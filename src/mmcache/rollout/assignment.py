"""Who is in the canary: a keyed hash of the unit (a tenant, or a session of one) gives a point in 0…1.

The same for every process that reads the state, unpredictable without it, drawn anew for each candidate so that not the
same tenants try everything, and monotone: who is in at 5 % is in at 10 %.
"""

from __future__ import annotations

from blake3 import blake3

from mmcache.keys.framing import framed


def place(seed: str, tenant: str, unit: str = "") -> float:
    """Where a unit stands, 0 ≤ place < 1, uniformly over units."""
    mark = framed(
        "canary", seed.encode(), tenant.encode("utf-8", "surrogatepass"), unit.encode("utf-8", "surrogatepass")
    )
    return (int.from_bytes(blake3(mark).digest(length=8), "big") >> 11) / (1 << 53)


def within(where: float, percent: float) -> bool:
    """Whether a unit that stands there is among the `percent` that try the candidate."""
    return where < percent / 100
