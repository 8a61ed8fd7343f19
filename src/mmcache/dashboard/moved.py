"""Which component of a key moved between a lookup that hit and one that missed: `mmcache explain TRACE`, for spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmcache.keys.drift.culprit import Comparison, compare
from mmcache.keys.drift.trace import Trace, make_trace

_FIELDS = {"model": "model_version", "schema": "schema_hash"}
"""What a `Signature` calls these components; people who set them know them by that name."""


@dataclass(frozen=True)
class Moved:
    """One component that changed."""

    component: str
    was: str
    now: str
    follows: bool = False
    """Only because another one did."""

    def to_dict(self) -> dict[str, str]:
        """JSON-able."""
        return {"component": self.component, "was": self.was, "now": self.now}


def as_trace(
    *, when: float, source: str, hit: bool, told: str, key: str, fields: Mapping[str, str], tenant: str = "",
    namespace: str = "", content: str = "", region: str = "", modality: str = "",
) -> Trace:  # fmt: skip
    """What a `TraceLog` would have held of a lookup. told: its tier, or the reason of the miss."""
    return make_trace(
        when=when, source=source, outcome=f"{'hit' if hit else 'miss'} ({told})", key=key,
        signature={"modality": modality, **fields}, tenant=tenant, namespace=namespace, content=content, region=region,
    )  # fmt: skip


def moved(hit: Trace, miss: Trace) -> tuple[list[Moved], str]:
    """What moved, causes before what follows from them; and A4's sentence about it."""
    found: Comparison | None = compare([hit, miss])
    if found is None:
        return [], ""
    changes = [
        Moved(_FIELDS.get(one.component, one.component), one.before, one.now, one.component not in found.culprits)
        for one in found.changes
        if one.changed
    ]
    told = found.told
    for component, name in _FIELDS.items():
        if any(one.component == name for one in changes):
            told = told.replace(component, name, 1)
    return sorted(changes, key=lambda one: one.follows), told


def moved_fields(was: Mapping[str, str], now: Mapping[str, str]) -> list[Moved]:
    """What moved between two signatures; nothing where the fields of one were not recorded."""
    if not was or not now:
        return []
    hit, miss = (
        as_trace(when=0.0, source="one", hit=first, told="", key=str(first), fields=fields)
        for first, fields in ((True, was), (False, now))
    )
    return moved(hit, miss)[0]
