"""How far each partition was applied, kept on the shared tier; and whether the broker's log is still the same.

A broker may lose its log and begin anew, under the same name and with offsets from 0: reading on where one left off
would skip what came meanwhile, silently. So a position says in *which* log it is: the topic's id, which is drawn when a
topic is made, and a mark, the digest of the last message that was applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from blake3 import blake3

from mmcache.sync.envelope import Message
from mmcache.sync.link import Hash

Partition = tuple[str, int]
"""A topic and a number."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a partition was applied."""

    offset: int
    """The next to read."""
    topic_id: str | None = None
    cluster: str | None = None
    mark: tuple[int, str] | None = None
    """Offset and digest of the last message that was applied."""
    server: str | None = None
    """Which connector writes to the partition."""
    mixed: bool = False
    """Whether several do: then versions in it cannot be compared."""
    tables: tuple[str, ...] = ()
    """Marks of the tables that were followed when it was saved: the changes of others were passed over."""


class Doubt(StrEnum):
    """Why it is not known what was missed."""

    UNKNOWN = "unknown"
    """There is no position yet."""
    ANOTHER_TOPIC = "another-topic"
    """A topic of that name was made anew."""
    SHORTER = "shorter"
    """The log ends before the position."""
    TRIMMED = "trimmed"
    """The broker has deleted what was not read yet."""
    OTHER_MESSAGES = "other-messages"
    """Where the last applied message was, there is another one."""


EXPLAINED = {
    Doubt.UNKNOWN: "it was never read before",
    Doubt.ANOTHER_TOPIC: "it was made anew",
    Doubt.SHORTER: "the broker has lost a part of it",
    Doubt.TRIMMED: "the broker has deleted what was not read yet",
    Doubt.OTHER_MESSAGES: "the broker's log is another one",
}


def digest_of(message: Message) -> str:
    """What a message is recognised by."""
    parts = (message.key, message.value)
    return blake3(b"".join(b"-" if p is None else b"%d:" % len(p) + p for p in parts)).hexdigest(length=12)


def doubt(position: Position | None, topic_id: str | None, low: int, high: int) -> Doubt | None:
    """Whether the log is another one than the position was in, or has a gap after it; None = its mark may tell.

    low, high: the first offset that is there, the next to be written.
    """
    if position is None or (position.mark is None and None in (topic_id, position.topic_id)):
        return Doubt.UNKNOWN  # nothing was read of it, by which it could be recognised
    if topic_id is not None and position.topic_id is not None and topic_id != position.topic_id:
        return Doubt.ANOTHER_TOPIC
    if high < position.offset:
        return Doubt.SHORTER
    return Doubt.TRIMMED if low > position.offset else None


def doubt_by_mark(position: Position, topic_id: str | None, first: Message | None) -> Doubt | None:
    """The same by the last message that was applied. first: from the mark's offset on; None where none was found."""
    if position.mark is None:
        return None
    if first is not None and first.offset == position.mark[0]:
        return None if digest_of(first) == position.mark[1] else Doubt.OTHER_MESSAGES
    # compaction or retention took the message away: then the topic's id must do
    return None if topic_id is not None and topic_id == position.topic_id else Doubt.OTHER_MESSAGES


class Positions:
    """All positions of a group."""

    def __init__(self, kept: Hash, group: str, marks: Mapping[str, str] | None = None) -> None:
        """marks: of the tables that are followed now."""
        self._kept, self._group, self._marks = kept, group, marks or {}
        self.passed_over: set[str] = set()
        """Tables of which a runner with another mapping passed changes over, as far as was seen by the last `load`."""

    def load(self) -> dict[Partition, Position]:
        """What was saved. What cannot be read is unknown. Raises `TierError`."""
        found = {}
        self.passed_over = set()
        for field, position in self._kept.read(Position).items():
            group, _, rest = field.partition("|")
            number, _, topic = rest.partition("|")
            if group == self._group and number.isdigit():
                found[topic, int(number)] = position
                self.passed_over |= {name for name, mark in self._marks.items() if mark not in position.tables}
        return found

    def save(self, positions: Mapping[Partition, Position]) -> None:
        """Raises `TierError`."""
        tables = tuple(self._marks.values())
        self._kept.put({
            self._field(partition): msgspec.json.encode(msgspec.structs.replace(position, tables=tables))
            for partition, position in positions.items()
        })  # fmt: skip

    def _field(self, partition: Partition) -> str:
        return f"{self._group}|{partition[1]}|{partition[0]}"


def restarted(position: Position | None, offset: int) -> Position:
    """In another log of the broker, of the same database."""
    if position is None:
        return Position(offset=offset)
    return msgspec.structs.replace(position, offset=offset, topic_id=None, cluster=None, mark=None)


def named(position: Position, topic_id: str | None, cluster: str | None) -> Position:
    """With what is known of the log it is in."""
    return msgspec.structs.replace(
        position, topic_id=topic_id or position.topic_id, cluster=cluster or position.cluster
    )
