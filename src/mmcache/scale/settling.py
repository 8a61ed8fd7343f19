"""Open slots, left by a move that was cut off, are brought to their end: no key is lost, none that was deleted returns.

Looked at anew, since what was planned by may be over. While a slot is open its keys are at two nodes, and the way back
is no mirror of the way there: an owner that has closed its side would say of keys that went ahead that they are not
there. So what is to end at its owner goes on to the other side first, and then comes back as any slot moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import ScaleError
from mmcache.scale.migrating import migrate
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.steps import Settle
from mmcache.scale.strays import clear, discard
from mmcache.scale.talk import Command
from mmcache.scale.views import View

_MOST_SECONDS = 10.0
"""Until gossip has told who could not be told."""


def settle(step: Settle, present: Present, cancelled: Cancelled) -> None:
    """They end at the target; those that have become somebody else's are open no more. Raises `ScaleError`."""
    there = present.view(step.target)
    if there.me.primary:
        raise ScaleError(f"{step.target} is a replica, and can be given no slots")
    if step.source is None:
        _take(step.slots, step.target, there, present)
        return
    here = present.view(step.source)
    at_target = [slot for slot in step.slots if slot in there.me.slots]
    ahead = [slot for slot in at_target if there.migrating.get(slot) == here.me.id]
    done = [slot for slot in at_target if slot not in ahead]
    if done:
        _announce(done, step.source, step.target, here, present, cancelled)
    if ahead:
        migrate(ahead, step.target, step.source, present, cancelled)
        here = present.view(step.source)
    if moving := [slot for slot in step.slots if slot in here.me.slots and slot not in done]:
        migrate(moving, step.source, step.target, present, cancelled)
    others = [slot for slot in step.slots if slot not in at_target and slot not in here.me.slots]
    if nobody := [slot for slot in others if there.owner(slot) is None]:
        _take(nobody, step.target, there, present)
    for slot in others:
        owner = there.owner(slot)
        if owner is not None and present.named(owner) is None:
            raise ScaleError(f"slot {slot} is served by {owner:.8}, which does not answer")
    _shut([slot for slot in others if slot not in nobody], (step.source, step.target), present)


def _announce(
    slots: Sequence[int], source: str, target: str, here: View, present: Present, cancelled: Cancelled
) -> None:
    """They are the target's already: whoever does not know it yet is told.

    The target says so only when the source has no keys left. What the source took since, because it has been replaced
    by a replica that did not know, is outdated; it drops that itself when it hears of the target's higher epoch.
    """
    to = present.identity(target)
    closing: list[Command] = [("CLUSTER", "SETSLOT", slot, "NODE", to) for slot in slots]
    present.chorus(source).tell([[command] for command in closing])
    if present.view(source).me.slots & set(slots):
        present.contact(target).ask("CLUSTER", "BUMPEPOCH")
        heard = present.patiently(lambda: not present.view(source).me.slots & set(slots), cancelled, _MOST_SECONDS)
        if not heard and not cancelled():
            raise ScaleError(f"{source} still takes slot {slots[0]} for its own, which is {target}'s")
    # Who serves them sends nobody to the source: what has gone to it was answered for as if it were not there.
    discard([slot for slot in slots if slot in here.importing], present.contact(source))
    _shut(slots, (source, target), present)
    present.tell_others((source, target), closing)


def _take(slots: Sequence[int], target: str, there: View, present: Present) -> None:
    """Who had them is gone: what has come over is what there is."""
    free = [slot for slot in slots if slot not in there.me.slots]
    for slot in free:
        owner = present.named(there.owner(slot) or "")
        if owner is not None and slot in present.seen.nodes[owner].slots:
            raise ScaleError(f"slot {slot} is served by {owner}")
    stay = [slot for slot in slots if slot in there.me.slots]
    for name, node in present.seen.nodes.items():
        if stay and name != target and not node.primary:
            clear(stay, name, there.me.id, present)  # who took the place of one whom keys were sent to
    _shut(stay, (target,), present)
    if free:
        closing: list[Command] = [("CLUSTER", "SETSLOT", slot, "NODE", there.me.id) for slot in free]
        present.chorus(target).insist([[command] for command in closing])
        present.contact(target).ask("CLUSTER", "BUMPEPOCH")
        present.tell_others((target,), closing)


def _shut(slots: Sequence[int], names: Sequence[str], present: Present) -> None:
    """Marks that are left over. A replica has none, and refuses."""
    if slots:
        for name in names:
            present.chorus(name).tell([[("CLUSTER", "SETSLOT", slot, "STABLE")] for slot in slots])
