"""What spans say of a key, a scope and a lookup, by the names in docs/reference/telemetry.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from mmcache.attribution import UNKNOWN, Attribution
from mmcache.forks import Lock
from mmcache.lookup import Lookup
from mmcache.model.key import WHOLE, Key
from mmcache.model.void import VoidKey
from mmcache.observing import Strategy
from mmcache.scopes import Scope

Attributes = dict[str, str | int | float | bool]

WEIGHT = "cache.sampling.weight"
_LONGEST = 120
_SCOPES = 1024


@dataclass(slots=True)  # not frozen: made for each lookup that is recorded, and frozen ones take thrice the time
class Seen:
    """What is kept of a lookup until its span is made; no frame, for that may be large and gone meanwhile."""

    key: Key
    outcome: str
    tier: str
    reason: str
    detail: str
    size: int | None
    """Bytes of the frame; None = not known any more."""
    saved: float
    left: float | None
    """Seconds until its deadline."""

    @staticmethod
    def of(key: Key, look: Lookup, strategy: Strategy, monotonic: Callable[[], float]) -> Seen:
        """`monotonic`: the clock of deadlines."""
        left = None if look.deadline is None else look.deadline - monotonic()
        if look.make is None:
            return Seen(key, "miss", "", look.reason.value, look.detail, None, 0.0, left)
        outcome = "near" if strategy == "near" else "stale" if look.stale else "hit"
        size = None if look.frame is None else look.frame.size
        return Seen(key, outcome, look.tier, "", "", size, look.saved, left)


class Describing:
    """Remembers what it says of each scope: that is most of it."""

    def __init__(self, find: Callable[[Key], Scope | None]) -> None:
        self._find, self._lock = find, Lock()
        self._scopes: dict[bytes, Attributes] = {}

    def scope(self, scope: Scope, signed: bool = True) -> Attributes:
        """Of a realm, and what is computed there; with `signed` its signature."""
        said = self._scopes.get(scope.digest)
        if said is None:
            signature = scope.signature
            said = {
                "cache.modality": signature.modality, "cache.tenant": scope.tenant, "cache.namespace": scope.namespace,
                "cache.signature": signature.digest.hex()[:16],
            }  # fmt: skip
            said |= {f"cache.signature.{name}": v[:_LONGEST] for name, v in asdict(signature).items() if v}
            with self._lock:
                if len(self._scopes) >= _SCOPES:
                    self._scopes.clear()
                self._scopes[scope.digest] = said
        return said if signed else {name: v for name, v in said.items() if not name.startswith("cache.signature")}

    def of(self, key: Key) -> Attributes:
        """Of the realm of `key`; nothing where it is not known."""
        scope = self._find(key)
        return {} if scope is None else self.scope(scope, signed=False)

    def key(self, key: Key, scope: Scope | None) -> Attributes:
        """Of a key and its scope. A void key stands for nothing that is stored."""
        said: Attributes = {} if scope is None else dict(self.scope(scope))
        if isinstance(key, VoidKey):
            return said
        said["cache.key.hash"] = key.short
        said["cache.content"] = key.digest.hex()
        if not key.endswith(WHOLE):
            said["cache.region"] = key.region.hex()
        if scope is not None:
            said["cache.content.id"] = scope.content_id(key).hex()
        return said

    def lookup(self, seen: Seen, strategy: Strategy) -> Attributes:
        """Of a lookup and how it ended."""
        said = self.key(seen.key, self._find(seen.key))
        how: str = strategy
        if strategy == "exact":
            how = "stale" if seen.outcome == "stale" else "region" if "cache.region" in said else strategy
        said |= {"cache.hit": seen.outcome != "miss", "cache.outcome": seen.outcome, "cache.strategy": how}
        if seen.outcome == "miss":
            said["cache.miss.reason"] = seen.reason
            if seen.detail:
                said["cache.miss.detail"] = seen.detail
        else:
            said["cache.tier"] = seen.tier
            if seen.size is not None:
                said |= {"cache.saved_ms": seen.saved * 1e3, "cache.bytes": seen.size}
        if seen.left is not None:
            said["cache.ttl.remaining_ms"] = seen.left * 1e3
        return said


def asked(by: Attribution) -> Attributes:
    """Who asked, and by which way."""
    if by is UNKNOWN:
        return {}
    said = {"cache.route": by.route, "cache.client": by.client, "cache.client.region": by.region}
    return {name: value for name, value in said.items() if value}
