"""Slots go from one primary to another, by the best way that both have; what was cut off is brought to its end."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import ScaleError
from mmcache.scale.atomic import hand_over
from mmcache.scale.migrating import migrate
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.steps import MoveSlots, Settle
from mmcache.scale.talk import Command
from mmcache.scale.views import View, moves_slots_itself

_MOST_SECONDS = 10.0
"""Until gossip has told what nobody could be told."""


def move(step: MoveSlots, present: Present, cancelled: Cancelled, *, key_by_key: bool = False) -> None:
    """Those that the source still has. `cancelled` ends it between batches. Raises `ScaleError`.

    key_by_key: even where the servers have a migration of their own.
    """
    if step.source == step.target:
        raise ScaleError(f"{step.source} cannot give slots to itself")
    from_, to = present.view(step.source).me, present.view(step.target).me
    if to.primary:
        raise ScaleError(f"{step.target} is a replica, and can be given no slots")
    slots = [slot for slot in dict.fromkeys(step.slots) if slot in from_.slots]
    if strange := set(step.slots) - from_.slots - to.slots:
        raise ScaleError(f"slot {min(strange)} is neither {step.source}'s nor {step.target}'s")
    if not slots:
        return
    both = [present.seen.nodes[name].version for name in (step.source, step.target)]
    if all(map(moves_slots_itself, both)) and not key_by_key:
        hand_over(slots, step.source, step.target, present, cancelled)
    else:
        migrate(slots, step.source, step.target, present, cancelled)


def settle(step: Settle, present: Present, cancelled: Cancelled) -> None:
    """Open slots end at the target, with all keys; those that have become somebody else's are open no more.

    Raises `ScaleError`.
    """
    there = present.view(step.target)
    if there.me.primary:
        raise ScaleError(f"{step.target} is a replica, and can be given no slots")
    if step.source is None:
        _take(step, there, present)
        return
    here = present.view(step.source)
    owned = [slot for slot in step.slots if slot in there.me.slots]
    moving = [slot for slot in step.slots if slot in here.me.slots and slot not in there.me.slots]
    others = [slot for slot in step.slots if slot not in here.me.slots and slot not in there.me.slots]
    if owned:
        _announce(owned, step.source, step.target, present, cancelled)
    if moving:
        migrate(moving, step.source, step.target, present, cancelled)
    if others:
        gone = [slot for slot in others if present.named(there.owner(slot) or "") is None]
        _take(Settle(tuple(gone), None, step.target), there, present)
        _shut(sorted(set(others) - set(gone)), (step.source, step.target), present)


def _announce(slots: Sequence[int], source: str, target: str, present: Present, cancelled: Cancelled) -> None:
    """They are the target's already: whoever does not know it yet is told.

    Keys that the source still holds are none that were acknowledged there after the target became the owner; it drops
    them itself when it hears of the target's higher epoch.
    """
    to = present.identity(target)
    closing: list[Command] = [("CLUSTER", "SETSLOT", slot, "NODE", to) for slot in slots]
    present.chorus(target).insist([[command] for command in closing])
    present.chorus(source).tell([[command] for command in closing])
    if present.view(source).me.slots & set(slots):
        present.contact(target).ask("CLUSTER", "BUMPEPOCH")
        heard = present.patiently(lambda: not present.view(source).me.slots & set(slots), cancelled, _MOST_SECONDS)
        if not heard and not cancelled():
            raise ScaleError(f"{source} still takes slot {slots[0]} for its own, which is {target}'s")
    _shut(slots, (source,), present)
    present.tell_others((source, target), closing)


def _take(step: Settle, there: View, present: Present) -> None:
    """Who had them is gone: what has come over is what there is."""
    slots = [slot for slot in step.slots if slot not in there.me.slots or slot in there.importing]
    for slot in slots:
        owner = present.named(there.owner(slot) or "")
        if owner not in (None, step.target) and slot in present.seen.nodes[owner or ""].slots:
            raise ScaleError(f"slot {slot} is served by {owner}")
    if not slots:
        return
    closing: list[Command] = [("CLUSTER", "SETSLOT", slot, "NODE", there.me.id) for slot in slots]
    node = present.contact(step.target)
    node.insist(closing)
    node.ask("CLUSTER", "BUMPEPOCH")
    present.tell_others((step.target,), closing)


def _shut(slots: Sequence[int], names: Sequence[str], present: Present) -> None:
    """Marks that are left over. A replica has none, and refuses."""
    if slots:
        for name in names:
            present.contact(name).tell([("CLUSTER", "SETSLOT", slot, "STABLE") for slot in slots])
