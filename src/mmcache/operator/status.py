"""A turn's `Status` as `status` of the resource. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmcache.operator.manifests import address, selector
from mmcache.operator.resource import Wish
from mmcache.scale.status import Condition, Phase, Status

FIGURES = ("qps", "baselineQps", "hitRatio", "keys", "usedBytes", "maxBytes", "progress", "message")
"""They may change in every turn, and are not worth a write each time."""
_LONGEST = 1024
_DIGITS = 3
_ALL = (*FIGURES, "phase", "shards", "wanted", "nodes", "readyNodes", "reason", "address", "selector")


def told(status: Status, wish: Wish, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """before: the resource's `status`. now: RFC 3339."""
    found: dict[str, Any] = {
        "phase": str(status.phase),
        "observedGeneration": wish.generation,
        "shards": status.shards,
        "wanted": status.wanted,
        "nodes": status.nodes,
        "readyNodes": status.ready_nodes,
        "qps": rounded(status.qps),
        "baselineQps": None if status.baseline_qps is None else rounded(status.baseline_qps),
        "hitRatio": None if status.hit_ratio is None else round(status.hit_ratio, _DIGITS),
        "keys": status.keys,
        "usedBytes": status.used_bytes,
        "maxBytes": status.max_bytes,
        "progress": status.progress and {
            "moved": status.progress.moved, "total": status.progress.total, "told": status.progress.told,
        },
        "reason": status.reason,
        "message": status.message[:_LONGEST],
        "address": address(wish),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(wish).items())),
        "conditions": conditions(status.conditions, wish.generation, before.get("conditions") or (), now),
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def refused(reason: str, message: str, generation: int, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Of a resource that cannot be followed, such as one whose `spec` is wrong: nothing is done to its cluster."""
    wrong = Condition("Progressing", False, reason, message)
    kept = [one for one in before.get("conditions") or () if one.get("type") != wrong.type]
    return {
        **{key: before[key] for key in _ALL if before.get(key) is not None and key != "progress"},
        "phase": str(Phase.BLOCKED),
        "observedGeneration": generation,
        "reason": wrong.reason,
        "message": message[:_LONGEST],
        "conditions": kept + conditions([wrong], generation, before.get("conditions") or (), now),
    }


def conditions(
    found: Sequence[Condition], generation: int, before: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """`lastTransitionTime` is when `status` changed last, not its reason."""
    last = {one.get("type"): one for one in before}
    out = []
    for one in found:
        state = "True" if one.status else "False"
        same = last.get(one.type, {}).get("status") == state
        since = last[one.type].get("lastTransitionTime", now) if same else now
        out.append({"type": one.type, "status": state, "reason": one.reason or "Unknown", "message":
                    one.message[:_LONGEST], "lastTransitionTime": since, "observedGeneration": generation})  # fmt: skip
    return out


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes one of the other."""
    gone = {key: None for key in before if key not in after and key in (*_ALL, "conditions")}
    return gone | {key: value for key, value in after.items() if before.get(key) != value}


def urgent(changed: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether people wait to see it: more changed than figures, and figures within messages."""
    if set(changed) - {*FIGURES, "conditions"}:
        return True
    states = [[(one.get("type"), one.get("status"), one.get("reason")) for one in said.get("conditions") or ()]
              for said in (before, changed)]  # fmt: skip
    return "conditions" in changed and states[0] != states[1]


def rounded(figure: float) -> float:
    """To three digits, so that a steady load is a steady status."""
    return float(f"{figure:.{_DIGITS}g}")
