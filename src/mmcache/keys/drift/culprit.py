"""Why a request that used to hit now misses: two traces of one source, component by component."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from mmcache.keys.drift.trace import COMPONENTS, Trace

FOLLOWS = {"content": ("decoder",), "tokens": ("tokenizer", "content"), "preprocess": ("statistics",)}
"""A change of the left is explained by a change of the right."""


@dataclass(frozen=True)
class Change:
    """One component, then and now; empty where it was not set."""

    component: str
    before: str
    now: str

    @property
    def changed(self) -> bool:
        """Whether it moved."""
        return self.before != self.now


@dataclass(frozen=True)
class Comparison:
    """A miss against the latest earlier hit of the same source."""

    miss: Trace
    hit: Trace
    changes: tuple[Change, ...]
    """Every component that either has, in order."""
    culprits: tuple[str, ...]
    """The components that moved by themselves, not only because another did. Empty: the key is the same."""
    told: str
    """The cause in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "miss": msgspec.to_builtins(self.miss),
            "hit": msgspec.to_builtins(self.hit),
            "components": [asdict(change) | {"changed": change.changed} for change in self.changes],
            "culprits": list(self.culprits),
            "told": self.told,
        }


def compare(traces: Iterable[Trace]) -> Comparison | None:
    """The last miss whose source was hit before, against the latest such hit; None where there is none.

    Entries count in their order, not by `when`: clocks step.
    """
    hits: dict[str, Trace] = {}
    pair: tuple[Trace, Trace] | None = None
    for trace in traces:
        if trace.hit:
            hits[trace.source] = trace
        elif trace.source in hits:
            pair = trace, hits[trace.source]
    return None if pair is None else _compared(*pair)


def _compared(miss: Trace, hit: Trace) -> Comparison:
    named = [*COMPONENTS, *sorted((miss.components.keys() | hit.components.keys()) - set(COMPONENTS))]
    changes = [Change(name, hit.components.get(name, ""), miss.components.get(name, "")) for name in named]
    changes = [change for change in changes if change.before or change.now]
    moved = {change.component for change in changes if change.changed}
    culprits = tuple(
        change.component
        for change in changes
        if change.changed and not moved.intersection(FOLLOWS.get(change.component, ()))
    )
    if culprits:
        told = f"{' and '.join(culprits)} changed, so the request has another key"
        if follows := [name for name in FOLLOWS if name in moved and name not in culprits]:
            told += f"; {', '.join(follows)} changed with it"
    elif miss.key == hit.key:
        told = f"nothing changed, the key is the same: the block is gone or not allowed ({miss.outcome})"
    else:
        told = "no component that was recorded changed, yet the key did: record more `parts`"
    return Comparison(miss, hit, tuple(changes), culprits, told)
