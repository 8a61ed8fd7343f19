"""How wrong is it? What was served, and what the checks found, by tenant, model and kind of prompt."""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.calibration.bounds import clopper_pearson
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.populations import learned


@dataclass(frozen=True)
class PopulationReport:
    """One promise, and how it is kept. Shares are 0…1."""

    tenant: str
    namespace: str
    model: str
    kind: str
    """Modalities of the prompts: `text`, `text+image`…"""
    max_error: float
    confidence: float
    judge: str
    asked: int
    exact: int
    """Hits of the very same prompt."""
    near: int
    """Hits of another prompt's answer."""
    computed: int
    checked: int
    """Near hits that were drawn for a check, and computed anew: of these"""
    wrong: int
    """… so many were wrong. Their callers got the computed answer."""
    compared: int
    """Comparisons with a near answer in all, those included that were not trusted."""
    compared_wrong: int
    state: str
    """What the calibration is at: `serving`, or how far it is from that."""

    @property
    def hit_ratio(self) -> float:
        """Exact and near hits per prompt."""
        return (self.exact + self.near) / self.asked if self.asked else 0.0

    @property
    def wrong_ratio(self) -> float | None:
        """Wrong per checked near hit; None before the first check."""
        return self.wrong / self.checked if self.checked else None

    @property
    def interval(self) -> tuple[float, float]:
        """Of the wrong ratio, by Clopper and Pearson (1934), two-sided at `confidence`; (0, 1) before a check."""
        return clopper_pearson(self.wrong, self.checked, self.confidence)

    @property
    def kept(self) -> bool:
        """Whether the checks are in keeping with the promise."""
        return self.interval[0] <= self.max_error


def report(ledger: Ledger) -> list[PopulationReport]:
    """Of all populations in a ledger. Raises `TierError`."""
    found = []
    for one in ledger.populations():
        counts = ledger.counts(one.id)
        right, wrong = counts.get("checked_right", 0), counts.get("checked_wrong", 0)
        compared_wrong = counts.get("compared_wrong", 0)
        found.append(
            PopulationReport(
                tenant=one.tenant,
                namespace=one.namespace,
                model=one.model,
                kind=one.kind,
                max_error=one.max_error,
                confidence=one.confidence,
                judge=one.judge,
                asked=counts.get("asked", 0),
                exact=counts.get("exact", 0),
                near=counts.get("near", 0),
                computed=counts.get("computed", 0),
                checked=right + wrong,
                wrong=wrong,
                compared=counts.get("compared_right", 0) + compared_wrong,
                compared_wrong=compared_wrong,
                state=_state(learned(ledger, one)),
            )
        )
    return found


def _state(summary: dict[str, float]) -> str:
    if summary["level"] >= 0:
        return f"serving, 1 of {1 / max(summary['check_share'], 1e-9):.0f} checked"
    return f"calibrating: {summary['outcomes']:.0f} of about {summary['outcomes_needed']:.0f} comparisons"
