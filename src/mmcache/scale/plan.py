"""`plan`: from any state of a cluster, the one next step. Pure: nothing is remembered from one turn to the next.

The questions below are asked in their order, and the first that has an answer has the turn; so what is urgent goes
first: blocks that would be lost, then slots that nobody serves, then who follows whom, then how many shards there are,
and last which version they run. Every step brings the cluster nearer to where no question has an answer, however often
it is cut off, and whatever else happens meanwhile: the next turn looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mmcache.scale.acquaint import forget, meet, strangers
from mmcache.scale.aim import Aim, aim, fresh, wait
from mmcache.scale.observed import Observed
from mmcache.scale.picture import Picture
from mmcache.scale.rescue import assign, await_absent, await_silent, relieve, take_over
from mmcache.scale.resize import resize, to_move
from mmcache.scale.roles import in_step, restart, roles, start, surplus
from mmcache.scale.settle import busy, settle
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase, Plan
from mmcache.scale.steps import StopShard
from mmcache.scale.upgrade import upgrade, vacate

MOST_SLOTS = 512
"""That one step moves: a turn is to end, so that what happens meanwhile is seen."""

Question = Callable[[Picture, Aim], Plan | None]

_BEFORE: tuple[Question, ...] = (take_over, start, meet, relieve)
_FRESH: tuple[Question, ...] = (restart, roles, assign)
_URGENT: tuple[Question, ...] = (settle, assign, await_absent, await_silent, busy)
_LATER: tuple[Question, ...] = (restart, roles, in_step, surplus, vacate, resize, upgrade)


def plan(spec: ClusterSpec, wanted: int, seen: Observed, *, most_slots: int = MOST_SLOTS) -> Plan:
    """What to do next for `wanted` shards of `spec`: at most one step, which may be cut off and be done again."""
    picture = Picture(seen)
    goal = aim(spec, wanted, picture, most_slots)
    if goal.refusal is not None and fresh(picture) and picture.nodes:
        return wait(Phase.BLOCKED, *goal.refusal)
    if not picture.nodes:
        return _unanswered(picture, goal)
    if (foreign := strangers(picture, goal)) is not None:
        return foreign
    questions = (*_BEFORE, *(_FRESH if fresh(picture) else (*_URGENT, *_LATER)))
    found = next((found for question in questions if (found := question(picture, goal)) is not None), None)
    settled = found or _settled(picture, goal)
    if settled.step is None and (dead := forget(picture, goal)) is not None:
        phase = Phase.REPAIRING if settled.phase is Phase.STEADY else settled.phase
        told = f"the nodes forget {dead.id[:8]}, which no member is any more; {settled.message}"
        settled = replace(settled, phase=phase, step=dead, reason="Forgetting", message=told)
    return replace(settled, left=to_move(picture, goal))


def plan_deletion(seen: Observed) -> Plan:
    """The shards are stopped, the highest first, whatever state they are in; what is cached in them goes with them."""
    left = sorted({member.shard for member in seen.members})
    running = [shard for shard in left if not all(m.leaving for m in seen.members if m.shard == shard)]
    if running:
        told = f"shard {running[-1]} stops, {len(running) - 1} run on until it is their turn"
        return Plan(Phase.DRAINING, StopShard(running[-1]), "Stopping", told)
    if left:
        return wait(Phase.DRAINING, "Stopping", f"{len(left)} shards are being stopped")
    return wait(Phase.DRAINING, "Drained", "all shards are stopped")


def _unanswered(picture: Picture, goal: Aim) -> Plan:
    """Nobody answers: a cluster that begins, or one that cannot be seen."""
    if goal.refusal is not None:
        return wait(Phase.BLOCKED, *goal.refusal)
    if any(member.ready for member in picture.members):
        told = (
            "no node answers, though the platform says that some run: are they reachable from here? Nothing is changed"
        )
        return wait(Phase.UNKNOWN, "Unreachable", told)
    starting = wait(Phase.CREATING, "Starting", "waiting for the nodes to answer")
    return start(picture, goal) or restart(picture, goal) or starting


def _settled(picture: Picture, goal: Aim) -> Plan:
    """Nothing is left to do."""
    shards = f"{goal.shards} shards serve"
    pending = [m.name for m in picture.silent if m.shard < goal.shards]
    if pending:
        told = f"{shards}; {', '.join(pending)} has no address yet: is there a machine for it?"
        return wait(Phase.REPAIRING, "WaitingForMember", told)
    if goal.refusal is not None:
        return wait(Phase.BLOCKED, *goal.refusal)
    machines = {member.machine for member in picture.members}
    beside = [
        f"{member.name} and its primary"
        for member in picture.members
        if (primary := picture.primaries.get(member.shard)) is not None
        and member != primary
        and member.machine
        and member.machine == primary.machine
    ]
    if beside and len(machines) > 1:
        told = f"{shards}; degraded: {', '.join(beside)} are on one machine, and would be lost together"
        return wait(Phase.STEADY, "ReplicaBesidePrimary", told)
    return wait(Phase.STEADY, "Steady", f"{shards}, each as many slots as the others")
