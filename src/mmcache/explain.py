"""`cache.explain`: what a key is made of, what each tier holds for it, and why it would hit or miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mmcache.keys.content import Content
from mmcache.model.clock import Clock
from mmcache.model.errors import MMCacheError
from mmcache.model.event import MissReason
from mmcache.model.key import WHOLE, Key
from mmcache.scopes import Scopes
from mmcache.tiers.base import Found


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

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"key": str(self.key)}

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.key}"]
        lines += [f"  tenant {self.tenant!r}, namespace {self.namespace!r}, modality {self.modality!r}"]
        lines += [f"  signature.{name} = {value}" for name, value in self.signature.items()]
        lines += [f"  content {self.content}" + (" (known from the encoded bytes)" if self.memo_hit else "")]
        lines += [f"  region {self.region}"] if self.region else []
        for t in self.tiers:
            left = "no deadline" if t.seconds_left is None else f"{t.seconds_left:.1f} s left"
            state = f"{t.bytes} bytes, {left}, {t.cost_seconds:.4f} s to compute" if t.found else t.reason
            lines.append(f"  {t.tier}: {state}")
        return "\n".join(lines)


Finder = Callable[[Key], Found | MissReason]


def explain(
    key: Key, content: Content | None, scopes: Scopes, finders: Mapping[str, Finder], reason: MissReason, clock: Clock
) -> Explanation:
    """Ask each tier's finder; `reason` is what a miss would be called."""
    findings = [_finding(tier, find, key, clock) for tier, find in finders.items()]
    hit = next((f.tier for f in findings if f.found), None)
    scope = scopes.find(key)
    fields = {} if scope is None else {name: v for name, v in asdict(scope.signature).items() if v}
    return Explanation(
        key=key,
        verdict=f"hit ({hit})" if hit else f"miss ({reason.value})",
        tenant=scope.tenant if scope else "?",
        namespace=scope.namespace if scope else "?",
        signature=fields,
        modality=fields.get("modality", "?"),
        content=key.digest.hex(),
        region="" if key.region == WHOLE else key.region.hex(),
        encoded=content.encoded_digest.hex() if content is not None and content.encoded_digest else "",
        memo_hit=content.memo_hit if content is not None else False,
        tiers=tuple(findings),
    )


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
