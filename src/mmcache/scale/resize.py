"""More shards or fewer: one at a time, slots even before the next one begins."""

from __future__ import annotations

from collections.abc import Collection

from mmcache.scale.acquaint import introduce
from mmcache.scale.aim import Aim, do, wait
from mmcache.scale.evenly import batch, left_to_move
from mmcache.scale.observed import SLOTS
from mmcache.scale.picture import Picture
from mmcache.scale.status import Phase, Plan, Progress
from mmcache.scale.steps import MoveSlots, StartShard, StopShard

MOST_BYTES = 256 << 20
"""That one step moves, about: it is to end soon, so that what happens meanwhile is seen."""


def resize(picture: Picture, aim: Aim) -> Plan | None:
    """The next step towards `aim.shards` shards that all serve as many slots."""
    serving = [shard for shard in picture.counts if shard < aim.shards]
    leaving = [shard for shard in picture.counts if shard >= aim.shards]
    empty = [shard for shard in picture.shards if shard >= aim.shards and shard not in picture.counts]
    for shard in reversed(empty):
        if not all(member.leaving for member in picture.shards[shard]):
            told = f"shard {shard} serves nothing any more and stops"
            return do(Phase.SCALING_IN, StopShard(shard), "Stopping", told)
    missing = [shard for shard in range(aim.shards) if shard not in serving]
    if serving and not leaving and left_to_move(picture.counts, serving):
        return even_out(picture, aim, Phase.SCALING_OUT, serving, ())
    for shard in missing if leaving else missing[:1]:
        if (found := _bring(picture, aim, shard)) is not None:
            return found
    if missing:
        takers = range(aim.shards) if leaving else [*serving, missing[0]]
        return even_out(picture, aim, Phase.SCALING_OUT, takers, leaving)
    if empty:
        names = ", ".join(str(shard) for shard in empty)
        return wait(Phase.SCALING_IN, "Stopping", f"shard {names} is being stopped")
    if leaving:
        return even_out(picture, aim, Phase.SCALING_IN, serving, leaving)
    return None


def even_out(
    picture: Picture, aim: Aim, phase: Phase, takers: Collection[int], leaving: Collection[int],
    done: Progress | None = None,
) -> Plan | None:  # fmt: skip
    """The next batch of slots on their way to be even over `takers`; None where they are."""
    found = batch(picture.counts, takers, leaving, aim.most_slots)
    if found is None:
        return None
    amount, giver, taker = found
    target = picture.usable(taker)
    source = next(member for member in picture.answering(giver) if picture.serves(member.name))
    if target is None:
        return wait(phase, "Starting", f"waiting for a primary of shard {taker} that can take slots")
    if not picture.knows(source.name, target.name):
        return introduce(picture, aim, source.name, target.name)
    held, served = picture.nodes[source.name].used_bytes, picture.serves(source.name)
    if amount * held > MOST_BYTES * len(served):
        amount = max(1, MOST_BYTES * len(served) // held)
    slots = tuple(sorted(served)[-amount:])
    left = done.total - done.moved if done else to_move(picture, aim)
    told = f"{len(slots)} slots go from {source.name} to {target.name}" + (f", {left} are to move" if left else "")
    return do(phase, MoveSlots(slots, source.name, target.name), "Moving", told, done)


def to_move(picture: Picture, aim: Aim) -> int | None:
    """Slots that have to move until it is as wanted, shard by shard; None while some are served by nobody we hear.

    From the slots alone: nothing is remembered of how it was before.
    """
    counts = picture.counts
    serving = [shard for shard in counts if shard < aim.shards]
    leaving = [shard for shard in counts if shard >= aim.shards]
    missing = [shard for shard in range(aim.shards) if shard not in serving]
    if not serving or sum(counts.values()) != SLOTS:
        return None
    left, now = 0, dict(counts)
    rounds = [serving, *(sorted([*serving, *missing[:many]]) for many in range(1, len(missing) + 1))]
    for takers in rounds[-1:] if leaving and missing else rounds:
        left += left_to_move(now, takers)
        each = SLOTS // len(takers)
        now = dict.fromkeys(takers, each)
        for odd in range(SLOTS - each * len(takers)):
            now[takers[odd]] += 1
    return left


def _bring(picture: Picture, aim: Aim, shard: int) -> Plan | None:
    """A shard that is to serve starts; None when it can take slots."""
    members = picture.shards.get(shard, ())
    if not members:
        return do(Phase.SCALING_OUT, StartShard(shard, aim.members), "Starting", f"shard {shard} starts")
    if picture.usable(shard) is None:
        named = ", ".join(member.name for member in members)
        return wait(Phase.SCALING_OUT, "Starting", f"waiting for {named} to be ready")
    return None
