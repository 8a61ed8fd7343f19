"""A pod counts for Kubernetes only when it holds what it is to hold.

A node that has just started answers, but it is empty. If it counted as ready, whoever drains one machine after another
would be allowed to take away the only node that has a shard's blocks. So pods have a readiness gate, which we open: for
a primary with slots, for a replica that has everything and that its primary and most others know for one, as they have
to when it is to take its primary's place. Budgets of disruptions and the clients' Service heed it; we do
not, for what we do makes a pod ready. While nobody looks, a new pod is not ready, which is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcache.operator.names import GROUP
from mmcache.scale.observed import Observed
from mmcache.scale.picture import Picture
from mmcache.scale.votes import is_known

CONDITION = f"{GROUP}/in-sync"


def holding(seen: Observed) -> dict[str, bool]:
    """By member that has an address and stays: whether it is worth something. In a cluster that begins, all are."""
    begins, picture = not any(node.slots for node in seen.nodes.values()), Picture(seen)
    return {
        member.name: member.name in picture.nodes and (begins or _holds(picture, member.name))
        for member in seen.members
        if member.host and not member.leaving
    }


def _holds(picture: Picture, name: str) -> bool:
    node = picture.nodes[name]
    return node.in_sync and is_known(picture, name) if node.primary else bool(node.slots)


def told(pod: Mapping[str, Any]) -> bool | None:
    """What a pod says of it now."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == CONDITION:
            return bool(one.get("status") == "True")
    return None


def runs(pod: Mapping[str, Any]) -> bool:
    """Whether it answers, whatever our gate says. Of a machine that is lost, Kubernetes takes back `Ready` alone."""
    known = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    ready, containers = known.get("Ready", {}), known.get("ContainersReady", {})
    closed = ready.get("reason") == "ReadinessGatesNotReady" and containers.get("status") == "True"
    return bool(ready.get("status") == "True" or closed)


def condition(holds: bool, uid: str, now: str) -> dict[str, Any]:
    """A change of a pod's status, and of no other pod's of that name. now: RFC 3339."""
    said = {"type": CONDITION, "status": "True" if holds else "False", "lastTransitionTime": now,
            "reason": "InSync" if holds else "NotInSync",
            "message": "it has its shard's blocks" if holds else
            "it has not got its shard's blocks yet, or its primary and most others do not know it yet"}  # fmt: skip
    return {"metadata": {"uid": uid}, "status": {"conditions": [said]}}
