"""Whether a replica would be let take its living primary's place. Pure.

A primary that is asked for its place serves no writes until that is decided, for up to five seconds, and a replica that
was not let by a majority of primaries asks them again only after four times `cluster-node-timeout` (Redis and Valkey,
`clusterHandleReplicaFailover`). So it asks when it will be let. A primary hears only those that it knows for its own
replicas. Those who vote want to know it for a replica, have heard of no newer epoch than it has, and believe of none of
its primary's slots that they are another's (`clusterSendFailoverAuthIfNeeded`). All that is news that nodes tell each
other within half of that timeout; and what two say to each other needs a link each way.
"""

from __future__ import annotations

from mmcache.scale.observed import NodeSeen
from mmcache.scale.picture import Picture

_UNSURE = frozenset({"fail", "fail?", "handshake", "noaddr"})


def is_let(picture: Picture, replica: str) -> bool:
    """Whether the primary of a member that answered hears it, and a majority would vote for it, as far as they say."""
    heir = picture.nodes[replica]
    name = picture.ids.get(heir.primary)
    if name is None:
        return False
    primary = picture.nodes[name]
    known = heir.others.get(primary.id)
    if known is None or known.slots != primary.slots or known.epoch < primary.epoch:
        return False
    voters = [node for one, node in picture.nodes.items() if not node.primary and picture.serves(one)]
    let = [node.id for node in voters if _votes(node, heir, primary)]
    many = max(sum(1 for other in heir.others.values() if other.slots), len(picture.slots_of))
    return primary.id in let and 2 * len(let) > many


def _votes(voter: NodeSeen, heir: NodeSeen, primary: NodeSeen) -> bool:
    there, back = heir.others.get(voter.id), voter.others.get(heir.id)
    believed = voter.others.get(primary.id)
    return (
        there is not None
        and back is not None
        and believed is not None
        and all(other.linked and not other.flags & _UNSURE for other in (there, back))
        and back.primary == primary.id
        and believed.slots == primary.slots
        and voter.heard_epoch <= heir.heard_epoch
    )
