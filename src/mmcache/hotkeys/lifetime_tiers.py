"""`LifetimeTiers`: what is expected of a key decides whether it is stored, and for how long.

Three tiers, by the probability that a key is still hot after the time for which the tier would keep it: *preload* (at
least 0.8 after 72 h): brought into memory ahead, kept 72 h; *on demand* (at least 0.5 after 24 h): kept 24 h; *bypass*:
not stored. A key of which nothing is expected is on demand: without evidence nobody is refused; and who is wanted again
and again although it was expected to be cold is refused a few times only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from mmcache.admission.base import Admission, Classed, Reject, Verdict, Watchful
from mmcache.admission.size import Always
from mmcache.model.block import Facts
from mmcache.model.event import RefuseReason
from mmcache.model.key import Key
from mmcache.settings import Tenant
from mmcache.ttl.base import Lifetime

PRELOAD, ON_DEMAND = 0.8, 0.5
"""Least probabilities."""
BYPASSED_SECONDS = 600.0
"""How long a block stays that is stored although it would be bypassed: where only the lifetime is ours."""
MOST_REFUSALS = 2
"""Of a key, until the model is asked again: who was computed so often is hot by now, whatever was expected."""
HOUR = 3600.0

Tier = Literal["preload", "on demand", "bypass"]


class Outlook(NamedTuple):
    """What is expected of a key."""

    near: float
    """P(hot after the nearer horizon), calibrated."""
    far: float
    until: float
    """Monotonic seconds after which nothing is expected any more."""
    sure: bool
    """Whether it has been watched for long enough to be refused."""

    @property
    def tier(self) -> Tier:
        """Where it belongs."""
        if self.far >= PRELOAD:
            return "preload"
        return "on demand" if self.near >= ON_DEMAND or not self.sure else "bypass"


class Outlooks:
    """What is expected, by key. Written by one thread, read by all: a read is one read of a dict."""

    def __init__(self, hours: tuple[float, float] = (24.0, 72.0)) -> None:
        self.hours = hours
        """The horizons."""
        self._of: dict[Key, Outlook] = {}
        self._refused: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def replace(self, outlooks: dict[Key, Outlook]) -> None:
        """All of them. They are ours from now on."""
        self._of, self._refused = outlooks, {}

    def refuse(self, key: Key) -> bool:
        """Whether `key`, of which too little is expected, may be refused once more; else nothing is expected of it."""
        times = self._refused[key] = self._refused.get(key, 0) + 1
        if times <= MOST_REFUSALS:
            return True
        self._of.pop(key, None)
        return False

    def get(self, key: Key, now: float) -> Outlook | None:
        """None: nobody knows."""
        found = self._of.get(key)
        return None if found is None or found.until <= now else found

    def items(self) -> list[tuple[Key, Outlook]]:
        """All of them, as they are now."""
        return list(self._of.items())


class TieredLifetime:
    """A `Lifetime`: 72 h for what is to be preloaded, 24 h on demand, ten minutes for what belongs nowhere.

    otherwise: the lifetime of keys of which nothing is known; None = as on demand.
    """

    def __init__(self, outlooks: Outlooks, otherwise: Lifetime | None = None) -> None:
        self._outlooks, self._otherwise = outlooks, otherwise

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """See `Lifetime.deadline`."""
        near, far = self._outlooks.hours
        found = self._outlooks.get(key, now)
        if found is None:
            return now + near * HOUR if self._otherwise is None else self._otherwise.deadline(key, facts, now)
        match found.tier:
            case "preload":
                return now + far * HOUR
            case "on demand":
                return now + near * HOUR
        return now + min(BYPASSED_SECONDS, near * HOUR)

    def used(self, key: Key, now: float) -> None:
        """See `Lifetime.used`."""
        if self._otherwise is not None:
            self._otherwise.used(key, now)

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """See `Lifetime.ended`."""
        if self._otherwise is not None:
            self._otherwise.ended(key, age, stale)


class TieredAdmission:
    """An `Admission`: refuses what belongs to no tier; asks `otherwise` about the rest, e.g. `QoS()`."""

    def __init__(self, outlooks: Outlooks, otherwise: Admission | None = None) -> None:
        self._outlooks = outlooks
        self._otherwise: Admission = Always() if otherwise is None else otherwise

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        """See `Admission.judge`."""
        found = self._outlooks.get(key, now)
        if found is not None and found.tier == "bypass" and self._outlooks.refuse(key):
            return Reject(RefuseReason.ADMISSION)
        return self._otherwise.judge(key, facts, now)

    def space(self, tenant: str, own: int, held: int, limit: int) -> None:
        """See `Watchful`."""
        if isinstance(self._otherwise, Watchful):
            self._otherwise.space(tenant, own, held, limit)

    def serve(self, tenants: Mapping[str, Tenant]) -> None:
        """See `Classed`."""
        if isinstance(self._otherwise, Classed):
            self._otherwise.serve(tenants)


class LifetimeTiers:
    """Both deciders on one table, which a `LifetimeWatch` fills.

    >>> tiers = LifetimeTiers()
    >>> with Cache(ttl=tiers.lifetime, admission=tiers.admission) as cache:
    ...     with LifetimeWatch(cache, "lifetime.safetensors", tiers):
    ...         serve(cache)

    Use one of them, or both. Until the watch knows something, everything is stored for 24 h.
    """

    def __init__(self, *, lifetime: Lifetime | None = None, admission: Admission | None = None) -> None:
        """lifetime: of keys of which nothing is expected. admission: asked about what is not bypassed."""
        self.outlooks = Outlooks()
        self.lifetime = TieredLifetime(self.outlooks, lifetime)
        self.admission = TieredAdmission(self.outlooks, admission)
