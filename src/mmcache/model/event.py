"""Events: what happened to a block, frozen, with the reason in an enum. Watchers read them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mmcache.model.key import Key


class MissReason(StrEnum):
    """Why a lookup did not hit. Exhaustive and exclusive."""

    ABSENT = "absent"
    EXPIRED = "expired"
    DENIED = "denied"
    SIGNATURE = "signature"
    CORRUPT = "corrupt"
    EVICTED = "evicted"
    BYPASSED = "bypassed"
    ABSTAINED = "abstained"
    TIMEOUT = "timeout"
    TIER_DOWN = "tier-down"
    STALE_LEASE = "stale-lease"


class RefuseReason(StrEnum):
    """Why a put was not stored."""

    TOO_LARGE = "too-large"
    ADMISSION = "admission"
    QUOTA = "quota"
    PINNED = "pinned"
    INVALIDATED = "invalidated"
    """While it was computed."""
    DISK_FULL = "disk-full"
    READ_ONLY = "read-only"
    TIER_DOWN = "tier-down"
    BACKLOG = "backlog"
    UNSUPPORTED = "unsupported"


class EvictReason(StrEnum):
    """Why a block left a tier before its deadline."""

    SPACE = "space"
    QUOTA = "quota"
    PURGED = "purged"


Why = tuple[tuple[str, float], ...]
"""A policy's score and its parts, by name; empty where it gives none."""


@dataclass(frozen=True, slots=True)
class Hit:
    key: Key
    tier: str


@dataclass(frozen=True, slots=True)
class NearHit:
    """A prompt was answered with what is stored for another one, which was trusted."""

    key: Key
    stored: Key
    tier: str
    confidence: float
    """Estimated P(right), 0…1."""


@dataclass(frozen=True, slots=True)
class Missed:
    key: Key
    reason: MissReason
    detail: str = ""
    """What is known of it besides: which signature is stored instead, which tier failed and how, what refused it."""


@dataclass(frozen=True, slots=True)
class Stored:
    key: Key
    tier: str
    size: int
    """Bytes."""
    cost: float
    """Seconds of compute that a hit will save."""


@dataclass(frozen=True, slots=True)
class Moved:
    key: Key
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Evicted:
    key: Key
    tier: str
    reason: EvictReason
    size: int
    """Bytes."""
    why: Why = ()


@dataclass(frozen=True, slots=True)
class Expired:
    key: Key
    tier: str


@dataclass(frozen=True, slots=True)
class Invalidated:
    key: Key


@dataclass(frozen=True, slots=True)
class Refused:
    key: Key
    tier: str
    reason: RefuseReason
    detail: str = ""
    why: Why = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A tier, a codec or a watcher failed; the caller's request went on without it."""

    where: str
    detail: str
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Differed:
    """A recomputed value was not the stored one: a non-deterministic encoder, or a wrong hit."""

    key: Key
    largest_difference: float
    """Largest absolute difference of any element; infinite when structure, shapes or dtypes differ."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """What inputs look like has moved away from the past, so far that it is not chance."""

    stream: str
    """Usually the modality."""
    divergence: float
    """KL(now ‖ baseline), nats."""
    threshold: float


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A block was brought before anybody asked for it."""

    key: Key
    hop: int
    """Steps from where the visitor is; 0 = said by somebody else than a graph of visits."""
    cost: float
    """Seconds of compute that bringing it took; 0 = it came from a lower tier."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Prefetching:
    """The prefetcher's controller went from one state to another."""

    was: str
    state: str
    reason: str


Event = (
    Hit | NearHit | Missed | Stored | Moved | Evicted | Expired | Invalidated | Refused | Failed | Differed | Drifted
    | Prefetched | Prefetching
)  # fmt: skip
