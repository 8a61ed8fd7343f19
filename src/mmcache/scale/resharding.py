"""Slots go from one primary to another, by the best way that both have."""

from __future__ import annotations

from mmcache.model.errors import ScaleError
from mmcache.scale.atomic import hand_over
from mmcache.scale.migrating import migrate
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.steps import MoveSlots
from mmcache.scale.views import moves_slots_itself


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
