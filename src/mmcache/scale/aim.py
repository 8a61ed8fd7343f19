"""What a plan works towards: how many shards, as far as that may be; and how a step is told."""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.scale.evenly import left_to_move
from mmcache.scale.picture import Picture
from mmcache.scale.room import shortage
from mmcache.scale.spec import FEWEST_SHARDS, MOST_SHARDS, ClusterSpec
from mmcache.scale.status import Phase, Plan, Progress
from mmcache.scale.steps import Step


@dataclass(frozen=True)
class Aim:
    """Shards 0…`shards` − 1 are to serve, each as many slots as the others."""

    spec: ClusterSpec
    shards: int
    """As wanted, or as many as are needed to hold the blocks."""
    refusal: tuple[str, str] | None
    """Why `shards` is not what is wanted: a word and a sentence."""
    most_slots: int
    """In one step."""

    @property
    def members(self) -> int:
        """Of a shard."""
        return 1 + self.spec.replicas


def aim(spec: ClusterSpec, wanted: int, picture: Picture, most_slots: int) -> Aim:
    """As few shards as wanted only when their memory holds what is there."""
    highest = max(picture.counts, default=-1) + 1
    if not FEWEST_SHARDS <= wanted <= MOST_SHARDS:
        word = "TooFewShards" if wanted < FEWEST_SHARDS else "TooManyShards"
        told = (
            f"{wanted} shards are wanted; a cluster has {FEWEST_SHARDS} to {MOST_SHARDS}: change minShards, maxShards"
        )
        return Aim(spec, max(FEWEST_SHARDS, highest), (word, told), most_slots)
    why = ""
    for shards in range(wanted, max(wanted, highest) + 1):
        lacking = shortage(picture, spec, range(shards), [shard for shard in picture.counts if shard >= shards])
        if not lacking:
            break
        why = why or lacking
    refusal = ("MemoryWouldNotFit", f"not fewer than {shards} shards: {why}") if why else None
    return Aim(spec, shards, refusal, most_slots)


def fresh(picture: Picture) -> bool:
    """Nobody serves a slot, as far as anybody who answers knows."""
    return not picture.slots_of


def phase_of(picture: Picture, aim: Aim, shard: int) -> Phase:
    """What it is called when something is done for a shard."""
    lost = any(absent.claims for absent in picture.absent.values())
    if fresh(picture) or (picture.unowned and not lost):
        return Phase.CREATING
    if shard not in picture.counts:
        return Phase.SCALING_OUT if shard < aim.shards else Phase.SCALING_IN
    within = [member for member in picture.members if member.shard < aim.shards]
    under_way = any(member.current for member in within) and not all(member.current for member in within)
    return Phase.UPGRADING if under_way else Phase.REPAIRING


def under_way(picture: Picture, aim: Aim) -> Phase:
    """What it is called when all that is missing is that the nodes come to an end with something."""
    counts, within = picture.counts, [member for member in picture.members if member.shard < aim.shards]
    if any(shard >= aim.shards for shard in counts):
        return Phase.SCALING_IN
    if fresh(picture) or not any(node.keys for node in picture.nodes.values()):
        return Phase.CREATING
    if len(counts) < aim.shards or left_to_move(counts, counts):
        return Phase.SCALING_OUT
    return Phase.REPAIRING if all(member.current for member in within) else Phase.UPGRADING


def do(phase: Phase, step: Step, reason: str, message: str, progress: Progress | None = None) -> Plan:
    """A step."""
    return Plan(phase, step, reason, message, progress)


def wait(phase: Phase, reason: str, message: str, progress: Progress | None = None) -> Plan:
    """No step: something else has to happen first."""
    return Plan(phase, None, reason, message, progress)
