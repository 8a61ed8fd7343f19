"""Every wanted shard has its members, one of them primary, and the others follow it."""

from __future__ import annotations

from collections.abc import Iterator

from mmcache.scale.acquaint import introduce
from mmcache.scale.aim import Aim, do, fresh, phase_of, under_way, wait
from mmcache.scale.observed import Member
from mmcache.scale.picture import Picture
from mmcache.scale.rescue import followers, heir_of
from mmcache.scale.status import Plan
from mmcache.scale.steps import Failover, MoveSlots, Replace, Replicate, StartShard, StopShard


def start(picture: Picture, aim: Aim) -> Plan | None:
    """Members that are missing. A new cluster's shards all start at once, later ones when it is their turn."""
    for shard in range(aim.shards):
        members = picture.shards.get(shard, ())
        here = {member.place for member in members}
        wholly = bool(here) or fresh(picture)
        if wholly and not any(member.leaving for member in members) and not here.issuperset(range(aim.members)):
            many = max([aim.members, *(place + 1 for place in here)])  # a place beyond may be the primary
            told = f"shard {shard} starts" if not here else f"shard {shard} starts the members that it lacks"
            return do(phase_of(picture, aim, shard), StartShard(shard, many), "Starting", told)
    return None


def restart(picture: Picture, aim: Aim) -> Plan | None:
    """A member that cannot come up with a version that is no longer wanted gets the one that is."""
    for member in picture.silent:
        if member.shard < aim.shards and not (member.ready or member.leaving or member.current):
            told = f"{member.name} does not come up; it starts with the version that is wanted now"
            return do(phase_of(picture, aim, member.shard), Replace(member.name), "Replacing", told)
    return None


def roles(picture: Picture, aim: Aim) -> Plan | None:
    """One primary a shard, whom the others replicate."""
    for shard in _wanted(picture, aim):
        primary = picture.primaries.get(shard)
        found = _without_primary(picture, aim, shard) if primary is None else _with(picture, aim, primary)
        if found is not None:
            return found
    return None


def _with(picture: Picture, aim: Aim, primary: Member) -> Plan | None:
    id, phase = picture.nodes[primary.name].id, phase_of(picture, aim, primary.shard)
    for member in picture.answering(primary.shard):
        node, name = picture.nodes[member.name], member.name
        if member == primary or node.primary == id or (member.leaving and not picture.serves(name)):
            continue
        if not picture.knows(name, primary.name):
            return introduce(picture, aim, name, primary.name)
        if served := sorted(picture.serves(name))[: aim.most_slots]:
            told = f"{name} and {primary.name} both serve slots: {len(served)} of them go to {primary.name}"
            return do(phase, MoveSlots(tuple(served), name, primary.name), "Joining", told)
        if node.slots:
            return wait(phase, "Converging", f"{name} is about to learn that its slots have gone to others")
        told = f"{name} becomes a replica of {primary.name}"
        return do(phase, Replicate(name, primary.name), "Replicating", told)
    return None


def _without_primary(picture: Picture, aim: Aim, shard: int) -> Plan | None:
    """All that answer are replicas, of an id that is dead or of another shard's primary; the shard has no slots."""
    phase = phase_of(picture, aim, shard)
    for member in picture.answering(shard):
        followed = picture.nodes[member.name].primary
        if followed in picture.absent:
            if not picture.absent[followed].gone:
                return wait(phase, "PrimaryAbsent", f"{member.name} waits for its primary ({followed[:8]})")
            heir = followers(picture, followed)[0].name  # elections are only held over slots
            if picture.stale(heir):
                told = f"{heir} has missed what was dropped before its primary ended; it starts anew"
                return do(phase, Replace(heir), "Replacing", told)
            told = f"{heir} takes the place of a primary that will not return ({followed[:8]})"
            return do(phase, Failover(heir, taken=True), "TakingOver", told)
        if followed not in picture.ids or picture.named[picture.ids[followed]].shard != shard:
            if any(peer.leaving or peer in picture.silent for peer in picture.shards[shard]):
                return wait(phase, "Starting", f"waiting for a member of shard {shard} that can be its primary")
            told = f"{member.name} replicates none of shard {shard}; it starts anew as its primary"
            return do(phase, Replace(member.name), "Replacing", told)
    if picture.answering(shard):
        return wait(phase, "Converging", f"the members of shard {shard} are about to agree on their primary")
    return None


def in_step(picture: Picture, aim: Aim) -> Plan | None:
    """Nothing is moved or replaced while a member that runs is out of step. One that has no address yet is not waited
    for: there may be no machine for it."""
    for shard in _wanted(picture, aim):
        phase = phase_of(picture, aim, shard)
        for member in picture.shards[shard]:
            if member.place >= aim.members and member != picture.primaries.get(shard):
                continue
            node = picture.nodes.get(member.name)
            if node is None:
                if member.host:
                    return wait(phase, "Starting", f"waiting for {member.name} to answer")
            elif member.leaving:
                return wait(phase, "Stopping", f"{member.name} is being stopped")
            elif not member.ready:
                return wait(phase, "Starting", f"waiting for {member.name} to be ready")
            elif not node.in_sync:
                return wait(phase, "Synchronizing", f"{member.name} is getting its primary's blocks")
            elif not node.cluster_ok:
                told = f"{member.name} has not heard yet that all slots are served"
                return wait(under_way(picture, aim), "Converging", told)
    return None


def surplus(picture: Picture, aim: Aim) -> Plan | None:
    """Fewer replicas are wanted: the members of the highest places go, never a primary that serves.

    One that serves nothing goes as it is: it could not hand over, since elections are only held over slots.
    """
    for shard in _wanted(picture, aim):
        members = picture.shards[shard]
        beyond = [member for member in members if member.place >= aim.members and not member.leaving]
        if not beyond:
            continue
        phase, primary = phase_of(picture, aim, shard), picture.primaries.get(shard)
        if primary is None or primary.leaving:
            return wait(phase, "Stopping", f"shard {shard} has a member too many, and no primary yet that stays")
        if primary in beyond and picture.serves(primary.name):
            heir = heir_of(picture, shard, [member for member in members if member not in beyond])
            if heir is None:
                return wait(phase, "Synchronizing", f"{primary.name} is to go when a replica can take its place")
            told = f"{heir.name} takes over from {primary.name}, which is not wanted any more"
            return do(phase, Failover(heir.name), "HandingOver", told)
        if any(picture.serves(member.name) for member in beyond if member.name in picture.nodes):
            continue  # not ours to stop: `roles` joins it first
        told = f"shard {shard} keeps {aim.members} of its members"
        return do(phase, StopShard(shard, aim.members), "Stopping", told)
    return None


def _wanted(picture: Picture, aim: Aim) -> Iterator[int]:
    return (shard for shard in picture.shards if shard < aim.shards)
