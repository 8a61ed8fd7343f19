"""Which machine a pod goes to: a decider, as the real scheduler is where rules must hold, and no cleverer.

It holds to a node's name, `unschedulable`, taints, `nodeSelector`, and required affinity and anti-affinity between pods
in both directions; among the machines left it takes the one with the fewest pods. It counts neither CPU nor memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def choose(pod: Json, machines: Sequence[Json], pods: Sequence[Json]) -> tuple[str | None, str]:
    """The machine's name, or None and why there is none. `pods`: all that are bound and have not ended."""
    reasons: dict[str, int] = {}
    places = {machine["metadata"]["name"]: machine for machine in machines}
    bound = [other for other in pods if other["spec"].get("nodeName") in places]
    load = {name: sum(other["spec"]["nodeName"] == name for other in bound) for name in places}
    for name in sorted(places, key=lambda name: (load[name], name)):
        reason = _against(pod, places[name], places, bound)
        if not reason:
            return name, ""
        reasons[reason] = reasons.get(reason, 0) + 1
    told = ", ".join(f"{count} node(s) {reason}" for reason, count in sorted(reasons.items()))
    return None, f"0/{len(places)} nodes are available: {told}."


def _against(pod: Json, machine: Json, places: Mapping[str, Json], bound: Sequence[Json]) -> str:
    spec, labels = machine["spec"], machine["metadata"].get("labels") or {}
    if spec.get("unschedulable") and not _tolerates(
        pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "were unschedulable"
    for taint in spec.get("taints") or ():
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(pod, taint):
            return f"had taint {{{taint['key']}: {taint.get('value', '')}}}, that the pod didn't tolerate"
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "didn't match node selector"
    for other in bound:
        at = places[other["spec"]["nodeName"]]
        apart = [*((term, pod, other) for term in _terms(pod, "podAntiAffinity")),
                 *((term, other, pod) for term in _terms(other, "podAntiAffinity"))]  # fmt: skip
        for term, asking, asked in apart:
            if _matches(term, asking, asked) and _same(term, machine, at):
                return "didn't match pod affinity/anti-affinity"
    for term in _terms(pod, "podAffinity"):
        fitting = [other for other in bound if _matches(term, pod, other)]
        near = any(_same(term, machine, places[other["spec"]["nodeName"]]) for other in fitting)
        if not near and (fitting or not _matches(term, pod, pod)):  # the first of a group that wants to be together
            return "didn't match pod affinity rules"
    return ""


def _tolerates(pod: Json, taint: Json) -> bool:
    return any(
        tolerated.get("effect") in (None, "", taint["effect"])
        and (tolerated.get("operator") == "Exists" or tolerated.get("value", "") == taint.get("value", ""))
        and tolerated.get("key")
        in ((None, "", taint["key"]) if tolerated.get("operator") == "Exists" else (taint["key"],))
        for tolerated in pod["spec"].get("tolerations") or ()
    )


def _terms(pod: Json, kind: str) -> Sequence[Json]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    found: Sequence[Json] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return found


def _matches(term: Json, asking: Json, asked: Json) -> bool:
    namespaces = term.get("namespaces") or [asking["metadata"]["namespace"]]
    return asked["metadata"]["namespace"] in namespaces and selects(term.get("labelSelector"), asked)


def _same(term: Json, one: Json, other: Json) -> bool:
    key = term["topologyKey"]
    values = [(machine["metadata"].get("labels") or {}).get(key) for machine in (one, other)]
    return values[0] is not None and values[0] == values[1]


def selects(selector: Json | None, pod: Json) -> bool:
    """Whether a label selector means this pod. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or {}
    wanted = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(labels.get(rule["key"]), rule["operator"], rule.get("values") or ())
        for rule in selector.get("matchExpressions") or ()
    )


def _holds(value: str | None, operator: str, values: Sequence[str]) -> bool:
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]
