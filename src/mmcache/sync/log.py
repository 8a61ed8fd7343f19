"""The broker's log, as a runner sees it; `kafka` is the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mmcache.sync.envelope import Message
from mmcache.sync.positions import Partition


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is there."""

    partitions: int
    identity: str | None = None
    """Drawn when it was made; None where the broker does not say."""


@dataclass(frozen=True, slots=True)
class Topics:
    """All that is to be read, just now."""

    cluster: str | None
    topics: Mapping[str, Topic]


class Log(Protocol):
    """Methods raise `SyncError` where the broker refuses for good, and return None where it does not answer for now."""

    def look(self) -> Topics | None:
        """Which of the topics to read are there; None = the broker does not answer. Takes a second at most."""

    def ends(self, partition: Partition) -> tuple[int, int] | None:
        """The first offset that is there, and the next to be written."""

    def ends_known(self, partition: Partition) -> int | None:
        """The next to be written, as far as was heard by the way."""

    def first_from(self, offsets: Mapping[Partition, int]) -> dict[Partition, Message | None]:
        """The first message of each partition from an offset on, None where there is none; partitions of which the
        broker says nothing are left out. Takes seconds at most.
        """

    def owned(self, topics: Topics) -> set[Partition]:
        """Which partitions this runner is to read."""

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions, from these offsets, and no others."""

    def poll(self, most: int, seconds: float) -> list[Message]:
        """Messages, in the order of their partition; waits so long for the first, and for no other."""

    def doubtful(self) -> bool:
        """Whether something was heard since the last call that may mean another log: a connection that broke, say."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Tell the broker how far this group has come: for the tools of others, nothing here goes by it."""

    def produce(self, topic: str, key: str, value: bytes) -> None:
        """Write a message. Raises `SyncError`."""

    def close(self) -> None:
        """Leave."""


def lag(positions: Mapping[Partition, int], log: Log, partitions: Sequence[Partition]) -> int:
    """How many messages are not applied yet, as far as is known."""
    ends = {partition: log.ends_known(partition) for partition in partitions}
    return sum(max(0, end - positions[p]) for p, end in ends.items() if end is not None and p in positions)
