"""Who belongs to a cluster and as what: steps that move no block."""

from __future__ import annotations

from typing import Any

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.observe import side_by_side
from mmcache.scale.present import Cancelled, Present, address_of
from mmcache.scale.steps import Assign, Forget, Meet, Replicate
from mmcache.scale.strays import clear

_LATE = frozenset({"handshake", "noaddr"})


def meet(step: Meet, present: Present, cancelled: Cancelled) -> None:
    """Both know each other at its end, or a little later. Raises `ScaleError`."""
    at = present.member(step.acquainted)
    present.contact(step.acquainted)  # a pod's address is soon another's: what answers there now could be any cluster
    ids = [present.identity(name) for name in (step.newcomer, step.acquainted)]
    present.contact(step.newcomer).ask("CLUSTER", "MEET", address_of(at), at.port)

    def acquainted() -> bool:
        views = [present.view(name) for name in (step.newcomer, step.acquainted)]
        return all(id_ in view.others and not view.others[id_].flags & _LATE for view in views for id_ in ids)

    present.patiently(acquainted, cancelled)


def assign(step: Assign, present: Present) -> None:
    """Slots without an owner, or with one that is gone. Raises `ScaleError`, also where one is served by somebody."""
    node, view = present.contact(step.member), present.view(step.member)
    if view.me.primary:
        raise ScaleError(f"{step.member} is a replica, and can be given no slots")
    free = set(step.slots) - view.me.slots
    taken: list[int] = []
    for other in view.others.values():
        mine, name = free & other.slots, present.named(other.id)
        if name is not None and mine & present.seen.nodes[name].slots:
            raise ScaleError(f"slot {min(mine)} is served by {name}")
        taken += sorted(mine)
        free -= mine
    # What is left over at it of these slots may have been dropped since. Servers from 7 on import from primaries only.
    others = [other for other in view.others.values() if other.id != view.me.id]
    if (given := sorted({*taken, *free})) and others:
        clear(given, step.member, min(others, key=lambda other: "master" not in other.flags).id, present)
    if taken:  # its owner is gone, but not forgotten
        node.insist([("CLUSTER", "SETSLOT", slot, "NODE", view.me.id) for slot in taken])
    if free:
        node.ask("CLUSTER", "ADDSLOTS", *sorted(free))
    # Whoever has the higher epoch is believed about a slot: no two primaries may have the same, and 0 is a newcomer's.
    node.ask("CLUSTER", "BUMPEPOCH")


def replicate(step: Replicate, present: Present) -> None:
    """Its blocks come by themselves, afterwards. Raises `ScaleError`."""
    node, view, primary = present.contact(step.member), present.view(step.member), present.identity(step.primary)
    if view.me.primary == primary:
        return
    if view.me.slots:
        raise ScaleError(f"{step.member} serves slots itself, and can be no replica")
    if primary not in view.others or view.others[primary].flags & _LATE:
        raise ScaleError(f"{step.member} does not know {step.primary} yet")
    if view.importing:
        raise ScaleError(f"{step.member} has keys of slots that it is about to get, and can be no replica yet")
    if not view.me.primary and node.ask("DBSIZE"):
        node.ask("FLUSHALL")  # left over from slots that others serve now; only an empty primary can become a replica
    node.ask("CLUSTER", "REPLICATE", primary)


def forget(step: Forget, present: Present) -> None:
    """All nodes at once, since one that still knows it would tell the others again. Raises `ScaleError`."""
    if (name := present.named(step.id)) is not None:
        raise ScaleError(f"{name} answers: it must not be forgotten")
    names = list(present.seen.nodes)

    def tell(name: str) -> Any:
        member = present.member(name)
        with present.access.to(member.host, member.port) as node:
            (said,) = node.tell([("CLUSTER", "FORGET", step.id)])
            if isinstance(said, TierError) and "unknown node" not in str(said).lower():
                raise ScaleError(f"{name}: CLUSTER FORGET: {said}") from said

    told = side_by_side(tell, names, present.access.timeout_seconds)
    for failed in told:
        # A replica cannot forget its primary: it is to be made another's, or a primary, first.
        if isinstance(failed, ScaleError) and "my master" not in str(failed) and "my primary" not in str(failed):
            raise failed
