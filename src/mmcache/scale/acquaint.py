"""Who knows whom: members meet, strangers are kept out, ids that nobody has any more are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mmcache.scale.aim import Aim, do, fresh, phase_of, wait
from mmcache.scale.picture import Picture
from mmcache.scale.status import Phase, Plan
from mmcache.scale.steps import Forget, Meet


def strangers(picture: Picture, aim: Aim) -> Plan | None:
    """Refuse to go on where a member's address leads into another cluster.

    Its blocks would be mixed with ours and its slots decided by epochs: one of the two would lose. What has slots, or
    knows who has, was given them after everyone had met; if none of us ever heard of it, it is not ours.
    """
    first, *others = _groups(picture, picture.acquainted) or [[]]
    for group in others:
        if _known_slots(picture, group):
            member = picture.named[group[0]]
            return wait(
                Phase.BLOCKED, "ForeignCluster",
                f"at {member.host}:{member.port}, where {member.name} should be, is a node of another cluster: no node "
                f"of {first[0]}'s cluster knows it, and it has slots. Nothing is changed until that server is stopped "
                "or emptied (CLUSTER RESET HARD)",
            )  # fmt: skip
    return None


def meet(picture: Picture, aim: Aim) -> Plan | None:
    """Whoever is needed gets to know those who serve.

    One that is just being introduced keeps only a cluster that begins waiting: where it cannot be reached by the others
    it will be introduced for ever, and others have slots that wait.
    """
    first, *others = _groups(picture, picture.knows) or [[]]
    waiting = None
    for group in others:
        for name in group:
            member = picture.named[name]
            if picture.serves(name) or (member.shard < aim.shards and not member.leaving):
                best = min(first, key=lambda known: (not picture.serves(known), picture.named[known].leaving))
                found = introduce(picture, aim, name, best)
                if found.step is not None:
                    return found
                waiting = waiting or found
    return waiting if fresh(picture) else None


def company(picture: Picture) -> list[str]:
    """Those who know each other and serve."""
    return (_groups(picture, picture.knows) or [[]])[0]


def introduce(picture: Picture, aim: Aim, newcomer: str, acquainted: str) -> Plan:
    """Let two meet, or wait while they do."""
    phase = phase_of(picture, aim, picture.named[newcomer].shard)
    if picture.greeting(newcomer, acquainted):
        return wait(phase, "Meeting", f"{newcomer} and {acquainted} are getting to know each other")
    return do(phase, Meet(newcomer, acquainted), "Meeting", f"{newcomer} gets to know {acquainted}")


def forget(picture: Picture, aim: Aim) -> Forget | None:
    """An id that no member has, that the others hold for dead, and that nobody needs.

    A node that was cut off while the others forgot an id brings it back by gossip, and none is kept from that for more
    than a minute; so this is done over and over, and only when there is nothing else to do.
    """
    followed = {node.primary for node in picture.nodes.values()}
    followed |= {absent.primary for absent in picture.absent.values() if not absent.gone}
    for id, absent in picture.absent.items():
        if absent.gone and absent.failed and absent.doubted and id not in followed and id not in picture.slots_of:
            return Forget(id)
    return None


def _groups(picture: Picture, tied: Callable[[str, str], bool]) -> list[list[str]]:
    """Members that are tied to each other, by way of others too; those who serve, or know who does, come first."""
    left, groups = list(picture.nodes), []
    while left:
        group, found = [left[0]], [left.pop(0)]
        while found:
            one = found.pop()
            tied_to = [name for name in left if tied(one, name)]
            left = [name for name in left if name not in tied_to]
            group += tied_to
            found += tied_to
        groups.append(sorted(group, key=list(picture.nodes).index))
    return sorted(groups, key=lambda group: _weight(picture, group), reverse=True) if len(groups) > 1 else groups


def _weight(picture: Picture, group: Iterable[str]) -> tuple[int, int, int]:
    names = list(group)
    return sum(len(picture.serves(name)) for name in names), len(_known_slots(picture, names)), len(names)


def _known_slots(picture: Picture, names: Iterable[str]) -> frozenset[int]:
    """That they serve, or know who does."""
    nodes = [picture.nodes[name] for name in names]
    said = (other.slots for node in nodes for other in node.others.values())
    return frozenset().union(*(node.slots for node in nodes), *said)
