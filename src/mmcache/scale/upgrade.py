"""Another version or other settings: members are replaced one at a time, and no block is lost on the way."""

from __future__ import annotations

from mmcache.scale.aim import Aim, do, wait
from mmcache.scale.observed import SLOTS, Member
from mmcache.scale.picture import Picture
from mmcache.scale.rescue import heir_of
from mmcache.scale.resize import even_out
from mmcache.scale.room import shortage
from mmcache.scale.status import Phase, Plan, Progress
from mmcache.scale.steps import Failover, Replace


def upgrade(picture: Picture, aim: Aim) -> Plan | None:
    """Replicas first, then a new one takes over, then the old primary goes. Only while nothing else is amiss.

    A member that finds no machine stops it: with the next ones it might be the same, and they would be missing, too.
    """
    old = [member for member in picture.members if member.shard < aim.shards and not member.current]
    if not old:
        return None
    told = f"{len(old)} members still run what is not wanted any more"
    for member in picture.members:
        if member.shard < aim.shards and (member.leaving or member.name not in picture.nodes):
            why = "" if member.host or member.leaving else ", which has no address yet (is there a machine for it?)"
            told += f"; waiting for {member.name}{why}, so that one is down at a time"
            return wait(Phase.UPGRADING, "Degraded", told)
    if lonely := _lonely(picture, aim):
        return _no_room(picture, aim, lonely[0])
    shard = old[0].shard
    primary = picture.primaries[shard]
    replicas = [member for member in old if member.shard == shard and member != primary]
    if replicas:
        return do(Phase.UPGRADING, Replace(replicas[0].name), "Replacing", f"{replicas[0].name} is replaced; {told}")
    peers = [member for member in picture.shards[shard] if member != primary and member.current]
    heir = heir_of(picture, shard, peers)
    if heir is not None:
        return do(
            Phase.UPGRADING, Failover(heir.name), "HandingOver", f"{heir.name} takes over from {primary.name}; {told}"
        )
    why = "it needs all blocks, and to be known to most primaries for a replica"
    return wait(Phase.UPGRADING, "Synchronizing", f"no replica of {primary.name} can take over yet: {why}; {told}")


def vacate(picture: Picture, aim: Aim) -> Plan | None:
    """Without replicas a primary gives its slots to the others before it is replaced, and gets its share back after.

    Which one that is follows from the slots: the old primary that has fewest. Nothing else is being resized.
    """
    old = _lonely(picture, aim)
    if not old or len(picture.counts) < 2 or set(picture.shards) != set(range(aim.shards)):
        return None
    if any(picture.usable(shard) is None or len(picture.shards[shard]) > 1 for shard in range(aim.shards)):
        return None
    member = min(old, key=lambda one: (picture.counts.get(one.shard, 0), one.shard))
    others = [shard for shard in range(aim.shards) if shard != member.shard]
    if member.shard not in picture.counts:
        told = f"{member.name} is replaced, its slots are with the others"
        return do(Phase.UPGRADING, Replace(member.name), "Replacing", told)
    if shortage(picture, aim.spec, others, [member.shard]):
        return None
    share, left = SLOTS // len(picture.counts), picture.counts[member.shard]
    done = Progress(max(0, share - left), max(share, left))
    return even_out(picture, aim, Phase.UPGRADING, others, [member.shard], done)


def _no_room(picture: Picture, aim: Aim, member: Member) -> Plan:
    others = [shard for shard in range(aim.shards) if shard != member.shard]
    lacking = shortage(picture, aim.spec, others, [member.shard]) or "the cluster is being resized"
    return wait(
        Phase.BLOCKED, "UpgradeNeedsRoom",
        f"{member.name} has no replica, so its blocks must go to the others before it is replaced; {lacking}, or give "
        "every shard a replica",
    )  # fmt: skip


def _lonely(picture: Picture, aim: Aim) -> list[Member]:
    """Old members that are alone in their shard."""
    return [
        members[0]
        for shard, members in picture.shards.items()
        if shard < aim.shards and len(members) == 1 and not aim.spec.replicas and not members[0].current
    ]
