"""How slots are spread: to within one of each other, with as few moves as there can be. Counts are by shard."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def quotas(counts: Mapping[int, int], takers: Collection[int]) -> dict[int, int]:
    """What each of `takers` is to have of all slots; who has most gets the odd ones, since that moves least."""
    each, odd = divmod(sum(counts.values()), len(takers))
    order = sorted(takers, key=lambda shard: (-counts.get(shard, 0), shard))
    return {shard: each + (number < odd) for number, shard in enumerate(order)}


def filled(counts: Mapping[int, int], takers: Collection[int], amount: int) -> dict[int, int]:
    """So many slots that nobody has, given to those that have fewest: how many each gets."""
    order = sorted(takers, key=lambda shard: (counts.get(shard, 0), shard))
    low = [counts.get(shard, 0) for shard in order]
    for many in range(len(order), 0, -1):  # the `many` emptiest are filled up to one level
        level, odd = divmod(sum(low[:many]) + amount, many)
        if level >= low[many - 1]:
            return {order[n]: level + (n < odd) - low[n] for n in range(many) if level + (n < odd) > low[n]}
    return {}


def left_to_move(counts: Mapping[int, int], takers: Collection[int]) -> int:
    """The fewest moves that make it even over `takers`."""
    return sum(max(0, quota - counts.get(shard, 0)) for shard, quota in quotas(counts, takers).items())


def batch(
    counts: Mapping[int, int], takers: Collection[int], leaving: Collection[int], most: int
) -> tuple[int, int, int] | None:
    """The next move: how many slots from which shard to which; None = it is even.

    Of several shards that leave, the highest is emptied before the next one is touched.
    """
    wanted = quotas(counts, takers)
    surplus = {shard: count - wanted.get(shard, 0) for shard, count in counts.items()}
    lacking = {shard: wanted[shard] - counts.get(shard, 0) for shard in takers}
    target = min(lacking, key=lambda shard: (-lacking[shard], shard))
    if lacking[target] <= 0:
        return None
    going = [shard for shard in leaving if counts.get(shard, 0) > 0]
    source = max(going) if going else min(surplus, key=lambda shard: (-surplus[shard], shard))
    return min(most, surplus[source], lacking[target]), source, target
