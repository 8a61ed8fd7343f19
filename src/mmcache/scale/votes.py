"""Whether a replica would be let take its living primary's place. Pure.

A primary that is asked for its place serves no writes until that is decided, for up to five seconds, and a replica that
was not let by a majority of primaries asks them again only after four times `cluster-node-timeout` (Redis and Valkey,
`clusterHandleReplicaFailover`). So it asks when it will be let. A primary hears only those that it knows for its own
replicas. Those who vote want to know it for a replica, have heard of no newer epoch than it has, and believe of none of
its primary's slots that they are another's (`clusterSendFailoverAuthIfNeeded`). All that is news that nodes tell each
other within half of that timeout; and what two say to each other needs a link each way.
"""

from __future__ import annotations

from collections.abc import Callable

from mmcache.scale.observed import NodeSeen
from mmcache.scale.picture import Picture

_UNSURE = frozenset({"fail", "fail?", "handshake", "noaddr"})


def is_let(picture: Picture, replica: str) -> bool:
    """Whether the primary of a member that answered hears it, and a majority would vote for it, as far as they say."""
    heir = picture.nodes[replica]
    primary = _primary(picture, heir)
    known = None if primary is None else heir.others.get(primary.id)
    if known is None or primary is None or known.slots != primary.slots or known.epoch < primary.epoch:
        return False
    return _majority(picture, heir, primary, lambda voter: _knows(voter, heir) and _votes(voter, heir, primary))


def is_known(picture: Picture, replica: str) -> bool:
    """The same but for what changes with each slot that moves: its primary and a majority know it for a replica."""
    heir = picture.nodes[replica]
    primary = _primary(picture, heir)
    return primary is not None and _majority(picture, heir, primary, lambda voter: _knows(voter, heir))


def _primary(picture: Picture, heir: NodeSeen) -> NodeSeen | None:
    name = picture.ids.get(heir.primary)
    return None if name is None else picture.nodes[name]


def _majority(picture: Picture, heir: NodeSeen, primary: NodeSeen, says: Callable[[NodeSeen], bool]) -> bool:
    """Whether most primaries say so, and this one among them."""
    voters = [node for name, node in picture.nodes.items() if not node.primary and picture.serves(name)]
    yes = [node.id for node in voters if says(node)]
    many = max(sum(1 for other in heir.others.values() if other.slots), len(picture.slots_of))
    return primary.id in yes and 2 * len(yes) > many


def _knows(voter: NodeSeen, heir: NodeSeen) -> bool:
    there, back = heir.others.get(voter.id), voter.others.get(heir.id)
    if there is None or back is None or back.primary != heir.primary:
        return False
    return all(other.linked and not other.flags & _UNSURE for other in (there, back))


def _votes(voter: NodeSeen, heir: NodeSeen, primary: NodeSeen) -> bool:
    believed = voter.others.get(primary.id)
    return believed is not None and believed.slots == primary.slots and voter.heard_epoch <= heir.heard_epoch
