"""What the store's readers hand to whoever decides (`explained`, `causes`): plain rows, no handle, no clock.

Times are Unix seconds. Counts are weighted by `cache.sampling.weight`: estimates of all lookups, not of those recorded.
Texts that are not known are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

AXES = ("modality", "route", "tenant", "region", "strategy", "service", "instance", "outcome", "reason")
"""What every lookup is counted by."""

REASONS = (
    "absent", "expired", "evicted", "signature", "denied", "corrupt", "bypassed", "abstained", "timeout", "tier-down",
    "stale-lease",
)  # fmt: skip
"""Every lookup that is no hit has exactly one (docs/reference/telemetry.md)."""


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` up to, and without, `end`."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max(self.end - self.start, 0.0)


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span, as stored."""

    trace: str
    """32 hex digits."""
    span: str
    """16 hex digits."""
    parent: str
    name: str
    kind: str
    """`internal`, `server`, `client`, `producer`, `consumer`."""
    start: float
    duration_ms: float
    service: str
    instance: str
    status: str
    """`unset`, `ok`, `error`."""
    lookup: bool = False
    """It is a `cache.lookup`."""
    hit: bool = False
    outcome: str = ""
    reason: str = ""
    detail: str = ""
    tier: str = ""
    modality: str = ""
    route: str = ""
    tenant: str = ""
    region: str = ""
    client: str = ""
    strategy: str = ""
    key: str = ""
    """16 hex digits."""
    content_id: str = ""
    """32 hex digits: the same input in the same realm, whatever the signature."""
    signature: str = ""
    """16 hex digits."""
    saved_ms: float = 0.0
    bytes: int = 0
    weight: float = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """All of them, the resource's too; `cache.signature.FIELD` among them."""

    @property
    def fields(self) -> dict[str, str]:
        """The signature's fields that the span names: `model_version`, `preprocess`…"""
        prefix = "cache.signature."
        return {name[len(prefix) :]: str(said) for name, said in self.attributes.items() if name.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """What one process had, of a kind of lookups, in a window."""

    service: str
    instance: str
    misses: float
    """For the reason that was asked for."""
    hits: float
    """Of all."""
    first_miss: float | None
    """When the first of these misses began."""


@dataclass(frozen=True, slots=True)
class ExplainRows:
    """What is known about one span."""

    span: SpanRow
    trace: Sequence[SpanRow]
    """All spans of its trace, oldest first."""
    earlier: Sequence[SpanRow]
    """Lookups and puts of the same content (`content_id`, else `key`) from before it, newest first, at most 50."""
    later: Sequence[SpanRow]
    """The first that began after it, oldest first, at most 10."""
    window: Window
    """What `spread` is counted over: an hour up to the span, and what followed, at most 10 minutes."""
    spread: Sequence[InstanceRow]
    """Misses of the same reason and, for `signature`, of the same signature as the span's; of the same modality."""
    signatures: Sequence[SignatureRow] = ()
    """Those that processes of the span's service used for its modality in `window` (`before_*` = before the span began,
    the others since): what says which change it was, where no hit of this input was recorded."""


@dataclass(frozen=True, slots=True)
class Group:
    """Lookups that are alike in all axes, in a baseline and now."""

    modality: str
    route: str
    tenant: str
    region: str
    strategy: str
    service: str
    instance: str
    outcome: str
    reason: str
    hit: bool
    before: float
    """Lookups in the baseline."""
    now: float
    first: float
    """Start of the slice (10 s or more) in which the first of those of now began."""
    weight: float = 0.0
    """How many lookups one recorded one stands for: Σ weight² / Σ weight; processes sample differently. 0 = as all."""

    def axis(self, name: str) -> str:
        """The value of one of `AXES`."""
        said: str = getattr(self, name)
        return said


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """A signature that was used by one process, in baseline and now."""

    service: str
    instance: str
    modality: str
    signature: str
    fields: Mapping[str, str]
    """Without the prefix: `model_version`, `preprocess`…"""
    before_hits: float
    before_misses: float
    hits: float
    misses: float
    """Of now, all reasons."""
    first: float
    """Start of its first lookup in either window."""
    last: float
    refused: float = 0.0
    """Misses of now for the reason `signature`."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """How many different keys somebody asked for: a flood asks for many, each once."""

    tenant: str
    route: str
    modality: str
    before_lookups: float
    before_keys: int
    """Different keys among the spans that were recorded."""
    lookups: float
    keys: int


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A miss to look at."""

    trace: str
    span: str
    start: float
    service: str
    instance: str
    tenant: str
    route: str
    modality: str
    region: str
    reason: str
    detail: str
    signature: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """Lookups of one tenant in one process during a step."""

    start: float
    seconds: float
    tenant: str
    instance: str
    reason: str
    """Empty = hits."""
    lookups: float


@dataclass(frozen=True, slots=True)
class CauseRows:
    """What is known about a window, and about the one that it is compared with."""

    baseline: Window
    now: Window
    groups: Sequence[Group]
    """All lookups of both."""
    steps: Sequence[StepRow]
    """Of both windows, at most 60 steps each, oldest first."""
    signatures: Sequence[SignatureRow]
    keys: Sequence[KeyRow]
    """The 50 with most lookups now."""
    examples: Sequence[ExampleRow]
    """Misses of now, a few of each (instance, tenant, reason), at most 400; oldest first."""
    weight: float = 1.0
    """How many lookups one recorded one stands for: Σ weight² / Σ weight over both windows; says what chance can do."""
