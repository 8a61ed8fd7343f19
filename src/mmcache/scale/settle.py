"""Moves of slots that were cut off: each is brought to its end, forwards where that makes sense, else back."""

from __future__ import annotations

from mmcache.scale.aim import Aim, do, phase_of, under_way, wait
from mmcache.scale.picture import Picture
from mmcache.scale.status import Plan
from mmcache.scale.steps import Settle


def settle(picture: Picture, aim: Aim) -> Plan | None:
    """Open slots, as many at once as have the same two ends."""
    ends: dict[tuple[str, str | None], list[int]] = {}
    for slot in sorted(_open(picture)):
        ended = _ends(picture, aim, slot)
        if ended is not None:
            ends.setdefault(ended, []).append(slot)
    if not ends:
        return None
    target, source = min(ends, key=lambda both: (ends[both][0], both[0]))
    slots = tuple(ends[target, source][: aim.most_slots])
    told = f"{len(slots)} slots whose move was cut off go to {target}"
    return do(phase_of(picture, aim, picture.named[target].shard), Settle(slots, source, target), "Settling", told)


def busy(picture: Picture, aim: Aim) -> Plan | None:
    """A migration of the servers' own is not disturbed, nor a slot of which an end is absent."""
    for name, node in picture.nodes.items():
        if node.moving:
            told = f"{name} is in a migration of slots that the servers do by themselves"
            return wait(under_way(picture, aim), "Moving", told)
    if slots := _open(picture):
        silent = ", ".join(member.name for member in picture.silent if member.host) or "the other end of it"
        told = f"the move of {len(slots)} slots was cut off, and goes on when {silent} answers or is started again"
        return wait(under_way(picture, aim), "Settling", told)
    return None


def _open(picture: Picture) -> set[int]:
    return {slot for node in picture.nodes.values() if not node.primary for slot in (*node.importing, *node.migrating)}


def _ends(picture: Picture, aim: Aim, slot: int) -> tuple[str, str | None] | None:
    """Target and source; None where nothing can be done now."""
    owner = picture.ids.get(picture.owner(slot))
    takers = [name for name, node in picture.nodes.items() if not node.primary and slot in node.importing]
    if owner is None:
        gone = picture.absent.get(picture.owner(slot))
        if gone is not None and (not gone.gone or any(node.primary == gone.id for node in picture.nodes.values())):
            return None  # it may come back, or its replica take over
        stays = [name for name in takers if _stays(picture, aim, name)]
        return (stays[0], None) if stays else None  # what it has got is all that is left of the slot
    to = picture.nodes[owner].migrating.get(slot, "")
    if to in picture.absent and not picture.absent[to].gone:
        return None  # what has gone ahead is there
    named = picture.ids.get(to)
    others = [name for name in ([named] if named else []) + takers if name != owner]
    for name in others:
        if _stays(picture, aim, name) and picture.knows(owner, name):
            return name, owner
    if others:  # blocks that went ahead come back
        return owner, others[0] if not picture.nodes[others[0]].primary else None
    givers = [name for name, node in picture.nodes.items() if not node.primary and slot in node.migrating]
    left = [name for name in givers if name != owner]
    return owner, left[0] if left else None


def _stays(picture: Picture, aim: Aim, name: str) -> bool:
    """It may have the slot: its shard's primary, of a shard that is wanted."""
    shard = picture.named[name].shard
    return shard < aim.shards and picture.usable(shard) == picture.named[name]
