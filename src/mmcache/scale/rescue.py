"""Slots whose node is absent: its replica takes over, or it is waited for, or they are lost and given to others."""

from __future__ import annotations

from collections.abc import Iterable

from mmcache.scale.acquaint import company
from mmcache.scale.aim import Aim, do, fresh, phase_of, wait
from mmcache.scale.evenly import filled
from mmcache.scale.observed import Member
from mmcache.scale.picture import Absent, Picture
from mmcache.scale.status import Phase, Plan
from mmcache.scale.steps import Assign, Failover
from mmcache.scale.views import NOBODY
from mmcache.scale.votes import is_let


def take_over(picture: Picture, aim: Aim) -> Plan | None:
    """A replica takes the place of a primary that will not return, where the nodes do not see to it themselves.

    They elect no replica of a node that has become another one (`noaddr`), and none whose link was down too long. An
    election that is just going on does no harm: the newer epoch wins, and some of those who voted are heard.

    Nor do they elect one without a majority of primaries, for ever. Where we do not hear one, two who serve one slot
    would be worse than none: so its process must be known to have *ended* (that it is silent proves nothing), there
    must be no majority out of sight that could elect somebody (what it leaves to us could serve nothing), and no other
    replica of it that was elected before, or would not hear of our choice. Who answers has just said of itself that it
    is a replica, and nobody but us, one at a time, makes one a primary without an election.
    """
    many = len(picture.slots_of)
    heard = 2 * sum(id in picture.ids for id in picture.slots_of) > many
    hidden = 2 * sum(not absent.ended for absent in _owners(picture)) > many
    for absent in _owners(picture):
        heirs = [heir for heir in followers(picture, absent.id) if not picture.stale(heir.name)]
        if heard:
            needed = absent.gone and absent.failed
        else:
            needed = absent.ended and (absent.failed or absent.doubted) and not hidden and not _rivals(picture, absent)
        if heirs and needed:
            heir = heirs[0].name
            return do(
                Phase.REPAIRING, Failover(heir, taken=True), "TakingOver",
                f"{heir} takes the place of a primary that will not return ({absent.id[:8]})",
            )  # fmt: skip
    return None


def await_absent(picture: Picture, aim: Aim) -> Plan | None:
    """Slots that are given away are never those that an absent node may still serve, or a replica take over."""
    if (outvoted := _outvoted(picture)) is not None:
        return outvoted
    for absent in _owners(picture):
        what = f"{len(picture.slots_of[absent.id])} slots are served by nobody"
        if picture.has_heirs(absent, failed=False) and (absent.failed or absent.doubted or absent.ended):
            told = f"{what}: a replica is about to take over from {absent.id[:8]}"
            return wait(Phase.REPAIRING, "Electing", told)
        if absent.gone and not picture.has_heirs(absent):
            continue
        named = ", ".join(_addressed(picture)) or absent.id[:8]
        if absent.doubted or absent.ended:
            told = f"{what} until {named} is started again: if its machine is gone, delete it"
        else:
            told = f"{named} does not answer, though the other nodes see it serve: is it reachable from here?"
        return wait(Phase.REPAIRING, "PrimaryAbsent", told)
    return None


def _outvoted(picture: Picture) -> Plan | None:
    """Half of the primaries or more are lost, and some of them may come back: nobody is elected, nobody serves."""
    lost = [absent for absent in _lost(picture) if not absent.gone or picture.has_heirs(absent)]
    if _majority(picture) or not lost:
        return None
    all_of, slots = len(picture.slots_of), sum(len(picture.slots_of[absent.id]) for absent in lost)
    named = ", ".join(_addressed(picture)) or ", ".join(absent.id[:8] for absent in lost)
    told = (
        f"no majority: {len(lost)} of {all_of} primaries do not answer, so that nobody can be elected for their "
        f"{slots} slots, and the others serve nothing either. Bring {named} back. One that has ended or hangs is "
        "started anew by itself, empty, and then its replica takes over; only if its machine is off for sure, delete it"
    )
    return wait(Phase.REPAIRING, "NoMajority", told)


def await_silent(picture: Picture, aim: Aim) -> Plan | None:
    """Who answers may have come so late that it was never told of all slots: a silent one may serve the others."""
    named = ", ".join(_addressed(picture))
    if not picture.unowned or not named:
        return None
    many = len(picture.unowned)
    told = f"nobody knows who serves {many} slots; {named} may, and does not answer: if its machine is gone, delete it"
    return wait(Phase.REPAIRING, "PrimaryAbsent", told)


def assign(picture: Picture, aim: Aim) -> Plan | None:
    """Slots that nobody serves go to those who have fewest: at the beginning, and when their blocks are lost.

    Those that no node knows an owner of may have one all the same that does not answer: see `await_silent`.
    """
    lost = [absent for absent in _owners(picture) if absent.gone and not picture.has_heirs(absent)]
    unowned = picture.unowned if fresh(picture) or not _addressed(picture) else frozenset()
    slots = sorted(unowned.union(*(picture.slots_of[absent.id] for absent in lost)))
    if not slots:
        return _affirm(picture)
    known = company(picture)
    able = [shard for shard in picture.shards if (one := picture.usable(shard)) and one.name in known]
    able = [shard for shard in able if not picture.doubted(picture.primaries[shard].name)] or able
    wanted = [shard for shard in able if shard < aim.shards]
    if fresh(picture):
        waited = _addressed(picture)
        waited += [str(shard) for shard in range(aim.shards) if shard not in wanted]
        if waited:
            return wait(Phase.CREATING, "Starting", f"waiting for {', '.join(waited)}")
    share = filled(picture.counts, wanted or able, len(slots))
    if not share:
        return wait(Phase.REPAIRING, "NobodyLeft", f"{len(slots)} slots wait for a node that can serve them")
    shard = min(share)
    name = picture.primaries[shard].name
    phase = Phase.REPAIRING if lost else phase_of(picture, aim, shard)
    told = f"{name} gets {share[shard]} slots that nobody serves"
    if lost:
        told += "; the blocks that were in them are lost"
    return do(phase, Assign(name, tuple(slots[: share[shard]])), "BlocksLost" if lost else "Assigning", told)


def _affirm(picture: Picture) -> Plan | None:
    """Who has slots of one that is gone, and no newer epoch than that one had, is not believed by all: it gets one."""
    for absent in picture.absent.values():
        for name, node in picture.nodes.items():
            if absent.gone and node.epoch <= absent.epoch and (slots := absent.claims & picture.serves(name)):
                told = (
                    f"{name} serves {len(slots)} slots, and some still think that {absent.id[:8]} does, which is gone"
                )
                return do(Phase.REPAIRING, Assign(name, tuple(sorted(slots))), "Affirming", told)
    return None


def relieve(picture: Picture, aim: Aim) -> Plan | None:
    """A primary that is about to be stopped hands over to a replica while it can."""
    for shard, primary in picture.primaries.items():
        heir = heir_of(picture, shard) if primary.leaving and picture.serves(primary.name) else None
        if heir is not None:
            told = f"{heir.name} takes over from {primary.name}, which is being stopped"
            return do(phase_of(picture, aim, shard), Failover(heir.name), "HandingOver", told)
    return None


def heir_of(picture: Picture, shard: int, among: Iterable[Member] | None = None) -> Member | None:
    """The replica that can take over from a shard's living primary without losing a block, and will be let; one that
    stays first."""
    primary = picture.nodes[picture.primaries[shard].name]
    able = [
        member
        for member in followers(picture, primary.id)
        if picture.nodes[member.name].in_sync and member.ready and not member.leaving and member.shard == shard
        if (among is None or member in among) and is_let(picture, member.name)
    ]
    return min(able, key=lambda member: not member.current, default=None)


def followers(picture: Picture, id: str) -> list[Member]:
    """Members that answered and replicate an id; who has most of its blocks, and no dropped one, comes first.

    Of those that have heard the same changes, who has heard more. One whose link is up may have fewer blocks: it may
    have found an empty newcomer where its primary was. And one that has more may have missed what was dropped.
    """
    found = {name: node for name, node in picture.nodes.items() if node.primary == id}
    newest: dict[str, int] = {}
    for node in found.values() if id not in picture.ids else ():
        newest[node.history] = max(node.offset, newest.get(node.history, 0))

    def rank(member: Member) -> tuple[object, ...]:
        node = found[member.name]
        behind = node.offset < newest.get(node.history, 0)
        return (picture.stale(member.name), behind, member.leaving, -node.keys, not member.current, member.shard,
                member.place)  # fmt: skip

    return sorted((picture.named[name] for name in found), key=rank)


def _addressed(picture: Picture) -> list[str]:
    """Members that do not answer, and may run."""
    return [member.name for member in picture.silent if member.host]


def _owners(picture: Picture) -> list[Absent]:
    return [picture.absent[id] for id in sorted(picture.slots_of) if id in picture.absent]


def _lost(picture: Picture) -> list[Absent]:
    """Primaries that do not answer, and that no node which does sees alive: one that others see may vote."""
    return [absent for absent in _owners(picture) if absent.doubted or absent.gone]


def _majority(picture: Picture) -> bool:
    """Whether there may be enough primaries to elect one."""
    return 2 * len(_lost(picture)) < len(picture.slots_of)


def _rivals(picture: Picture, absent: Absent) -> bool:
    """Whether somebody else may have been elected, or still be, and would not hear of it: out of sight and perhaps its
    replica, by anybody's word (hearsay does not say whose); or its replicas that answer do not hear each other."""
    heirs = [member.name for member in followers(picture, absent.id)]
    if any(not picture.knows(one, other) or picture.doubted(one) for one in heirs for other in heirs if one != other):
        return True
    return any(
        not other.ended
        and other.id not in picture.slots_of
        and any(view.primary in ("", NOBODY, absent.id) for view in other.views)
        for other in picture.absent.values()
        if other.id != absent.id
    )
