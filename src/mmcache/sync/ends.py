"""Where partitions of the broker's log end: those to be read, and those that other runners of the group read."""

from __future__ import annotations

from collections.abc import Collection

from mmcache.model.clock import Clock
from mmcache.sync.log import Log, Topics
from mmcache.sync.positions import Partition, Position, Positions

LOOK_SECONDS = 1.0


def ends_of(
    log: Log, partitions: Collection[Partition], silent: Collection[Partition], clock: Clock
) -> dict[Partition, tuple[int, int]]:
    """As many as are told in a second: those that were silent before are asked last."""
    found: dict[Partition, tuple[int, int]] = {}
    end = clock.monotonic() + LOOK_SECONDS
    for partition in sorted(partitions, key=lambda one: (one in silent, one)):
        ends = log.ends(partition)
        if ends is not None:
            found[partition] = ends
        elif clock.monotonic() >= end:
            break
    return found


def others(
    log: Log, kept: Positions, topics: Topics, owned: Collection[Partition]
) -> tuple[dict[Partition, int | None], dict[Partition, Position]]:
    """What other runners of the group read: where it ends (None = not told), and how far they are. Nobody is told that
    nothing is missed before they have applied theirs as well. Raises `TierError`.
    """
    every = {(name, number) for name, topic in topics.topics.items() for number in range(topic.partitions)}
    ends = {partition: log.ends(partition) for partition in every.difference(owned)}
    positions = kept.load() if ends else {}
    return (
        {partition: None if found is None else found[1] for partition, found in ends.items()},
        {partition: position for partition, position in positions.items() if partition in ends},
    )
