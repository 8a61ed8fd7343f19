"""`cache.explain`: what a key is made of, what each tier holds for it, and why it would hit or miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from mmcache.fates import Fate
from mmcache.keys.content import Content
from mmcache.keys.drift.trace import Trace, make_trace
from mmcache.model.clock import Clock
from mmcache.model.errors import MMCacheError
from mmcache.model.event import MissReason
from mmcache.model.key import WHOLE, Key
from mmcache.scopes import Scopes
from mmcache.store import Store
from mmcache.tiers.base import Found, Tier


@dataclass(frozen=True)
class TierFinding:
    """What one tier says of the key."""

    tier: str
    found: bool
    reason: str
    """Why not, or empty."""
    bytes: int = 0
    seconds_left: float | None = None
    """Until its deadline; None = no deadline."""
    cost_seconds: float = 0.0
    created: float = 0.0
    """Unix seconds."""
    codecs: tuple[str, ...] = ()
    """The chain of each leaf."""
    score: dict[str, float] = field(default_factory=dict)
    """What the policy thinks of it, `score` and its parts: a low score goes first. Empty where it gives no reasons."""


@dataclass(frozen=True)
class Departure:
    """The last time that the block left, or was refused."""

    what: str
    """`evicted`, `expired`, `refused` or `invalidated`."""
    tier: str
    reason: str
    seconds_ago: float
    score: dict[str, float]
    """As in `TierFinding`, at that time."""


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`; `str()` is for people, `to_dict()` for programs."""

    key: Key
    verdict: str
    """`hit (tier)` or the miss reason."""
    tenant: str
    namespace: str
    signature: dict[str, str]
    """The fields that are set."""
    modality: str
    content: str
    """Hex digest of the canonical content."""
    region: str
    """Hex digest of the region recipe, empty for the whole input."""
    encoded: str
    """Hex digest of the encoded bytes, if there were any."""
    memo_hit: bool
    """Whether the content digest was known from the encoded bytes, without decoding."""
    tiers: tuple[TierFinding, ...]
    references: int = 0
    """How many other blocks or answers need it."""
    departure: Departure | None = None
    """How it left memory or was refused, if that was after it was last stored there."""
    lifetime: dict[str, float | str] = field(default_factory=dict)
    """What the lifetime knows of this modality; empty for a fixed one."""
    detail: str = ""
    """Of a miss, where it is known: which signature is stored instead, which tier says so, what refused it."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"key": str(self.key)}

    def trace(
        self, *, when: float, source: str = "", statistics: str = "", tokens: str = "", parts: Mapping[str, str] = {}
    ) -> Trace:
        """What a `TraceLog` takes, so that a later miss can be held against this: digests, no content.

        when: Unix seconds. source: what names the input though its components move, e.g. a digest of its address;
        default: its encoded bytes, else its content. statistics: `FrozenStatistics.digest`. tokens: see
        `digest_tokens`. parts: digests of whatever else the key depends on, e.g. the text that OCR read.
        """
        return make_trace(
            when=when, source=source or self.encoded or self.content, outcome=self.verdict, key=str(self.key),
            signature=self.signature, tenant=self.tenant, namespace=self.namespace, content=self.content,
            region=self.region, statistics=statistics, tokens=tokens, parts=parts,
        )  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.key}"] + ([f"  {self.detail}"] if self.detail else [])
        lines += [f"  tenant {self.tenant!r}, namespace {self.namespace!r}, modality {self.modality!r}"]
        lines += [f"  signature.{name} = {value}" for name, value in self.signature.items()]
        lines += [f"  content {self.content}" + (" (known from the encoded bytes)" if self.memo_hit else "")]
        lines += [f"  region {self.region}"] if self.region else []
        for t in self.tiers:
            left = "no deadline" if t.seconds_left is None else f"{t.seconds_left:.1f} s left"
            state = f"{t.bytes} bytes, {left}, {t.cost_seconds:.4f} s to compute" if t.found else t.reason
            lines.append(f"  {t.tier}: {state}")
            lines += [f"    {_scored(t.score)}"] if t.score else []
        lines += [f"  needed by {self.references} others"] if self.references else []
        if (gone := self.departure) is not None:
            lines.append(f"  {gone.what} {gone.seconds_ago:.1f} s ago: {gone.tier}, {gone.reason}")
            lines += [f"    {_scored(gone.score)}"] if gone.score else []
        lines += [f"  lifetime: {_listed(self.lifetime)}"] if self.lifetime else []
        return "\n".join(lines)


Finder = Callable[[Key], Found | MissReason]


def explain(key: Key, content: Content | None, scopes: Scopes, store: Store, clock: Clock) -> Explanation:
    """Ask each tier, the policy, the references, the lifetime, and what is remembered of blocks that left."""
    finders: dict[str, Finder] = {"memory": store.memory.look, **{t.name: partial(_first, t) for t in store.lower}}
    findings = [_finding(tier, find, key, clock) for tier, find in finders.items()]
    if findings[0].found:
        findings[0] = replace(findings[0], score=store.memory.explain(key))
    hit = next((f.tier for f in findings if f.found), None)
    scope = scopes.find(key)
    fields = {} if scope is None else {name: v for name, v in asdict(scope.signature).items() if v}
    modality, fate = fields.get("modality", "?"), store.fates.last(key)
    reason, detail = ("", "") if hit else _reason(findings, store, key)
    return Explanation(
        key=key,
        verdict=f"hit ({hit})" if hit else f"miss ({reason})",
        tenant=scope.tenant if scope else "?",
        namespace=scope.namespace if scope else "?",
        signature=fields,
        modality=modality,
        content=key.digest.hex(),
        region="" if key.region == WHOLE else key.region.hex(),
        encoded=content.encoded_digest.hex() if content is not None and content.encoded_digest else "",
        memo_hit=content.memo_hit if content is not None else False,
        tiers=tuple(findings),
        references=store.keeping.references.holds(key),
        departure=None if fate is None else _departure(fate, clock.monotonic()),
        lifetime=dict(store.keeping.lifetime.explain(modality)),
        detail=detail,
    )


def _reason(findings: Sequence[TierFinding], store: Store, key: Key) -> tuple[str, str]:
    """And in a few words, where they are known."""
    for finding in findings:
        if finding.reason != MissReason.ABSENT.value:
            return finding.reason, finding.tier
    look = store.name_miss(key)
    return look.reason.value, look.detail


def _departure(fate: Fate, now: float) -> Departure:
    return Departure(fate.what, fate.tier, fate.reason, max(0.0, now - fate.when), fate.score)


def _first(tier: Tier, key: Key) -> Found | MissReason:
    (found,) = tier.get([key])
    return found


def _scored(score: Mapping[str, float]) -> str:
    parts = _listed({name: value for name, value in score.items() if name != "score"})
    return f"score {score.get('score', 0.0):.6g}" + (f" from {parts}" if parts else "")


def _listed(parts: Mapping[str, float | str]) -> str:
    return ", ".join(f"{name} {v:.6g}" if isinstance(v, int | float) else f"{name} {v}" for name, v in parts.items())


def _finding(tier: str, find: Finder, key: Key, clock: Clock) -> TierFinding:
    try:
        found = find(key)
    except (MMCacheError, OSError, ValueError) as error:
        return TierFinding(tier, False, f"{MissReason.TIER_DOWN.value}: {error}")
    if not isinstance(found, Found):
        return TierFinding(tier, False, found.value)
    header = found.frame.header
    left = None if found.deadline is None else found.deadline - clock.monotonic()
    codecs = tuple("+".join(step.name for step in leaf.chain) or "raw" for leaf in header.leaves)
    return TierFinding(tier, True, "", found.frame.size, left, header.cost, header.created, codecs)
