"""Whether fewer nodes would hold what is there.

A resharding that takes a shard away begins only when the blocks fill at most `TO_BEGIN` of what the others have, and
goes on until `TO_GO_ON`: without the distance one that began would turn back at each block that is stored meanwhile.
Where it has to stop, the shard that was being emptied gets its share again: the others would evict blocks for want of
the memory that it still has.
"""

from __future__ import annotations

from collections.abc import Collection

from mmcache.scale.evenly import quotas
from mmcache.scale.observed import SLOTS
from mmcache.scale.picture import Picture
from mmcache.scale.spec import ClusterSpec

TO_BEGIN = 0.85
TO_GO_ON = 0.95


def shortage(picture: Picture, spec: ClusterSpec, stay: Collection[int], leave: Collection[int]) -> str:
    """Why the shards `stay` cannot take over from `leave`, and what to change; "" = they can, or may evict."""
    counts = picture.counts
    leave = [shard for shard in leave if counts.get(shard)]
    if spec.allow_eviction or not leave:
        return ""
    used, most = _used(picture), _most(picture, spec, stay)
    begun = any(counts[shard] < SLOTS // len(counts) - 1 for shard in leave)
    share = TO_GO_ON if begun else TO_BEGIN
    total, room = sum(used.values()), share * sum(most.values())
    change = "give the nodes more memory, allow eviction, or want more shards"
    if total > room:
        return (
            f"{len(most)} would have to hold {_size(total)}, and {share:.0%} of their memory is {_size(room)}; {change}"
        )
    a_slot = sum(used.get(shard, 0) for shard in leave) / sum(counts[shard] for shard in leave)
    for shard, quota in sorted(quotas(counts, stay).items()):
        then = used.get(shard, 0) + max(0, quota - counts.get(shard, 0)) * a_slot
        if then > TO_GO_ON * most[shard]:
            return f"shard {shard} would have to hold {_size(then)} of {_size(most[shard])}; {change}"
    return ""


def _used(picture: Picture) -> dict[int, int]:
    """Bytes by shard, of those nodes that serve."""
    used: dict[int, int] = {}
    for name, node in picture.nodes.items():
        if picture.serves(name):
            shard = picture.named[name].shard
            used[shard] = used.get(shard, 0) + node.used_bytes
    return used


def _most(picture: Picture, spec: ClusterSpec, shards: Collection[int]) -> dict[int, int]:
    """Bytes that each may use."""
    primaries = {shard: picture.nodes[member.name] for shard, member in picture.primaries.items()}
    return {s: (primaries[s].max_bytes if s in primaries else 0) or spec.memory_bytes for s in shards}


def _size(bytes_: float) -> str:
    return f"{bytes_ / (1 << 20):.0f} MiB"
