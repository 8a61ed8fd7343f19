"""What can be done to a cluster, one at a time. Every step may be cut off anywhere and be done again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartShard:
    """The platform runs so many members of this shard, with the wanted version and settings; those that run stay."""

    shard: int
    members: int


@dataclass(frozen=True)
class StopShard:
    """The platform ends this shard's members from place `keep` on, and their storage."""

    shard: int
    keep: int = 0


@dataclass(frozen=True)
class Replace:
    """The platform ends this member and starts it anew, with the wanted version and settings: empty, under a new id."""

    member: str


@dataclass(frozen=True)
class Meet:
    """Two members get to know each other, and by gossip all the others."""

    newcomer: str
    acquainted: str


@dataclass(frozen=True)
class Assign:
    """Slots that nobody serves are given to a primary. What was in them is lost already."""

    member: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Replicate:
    """A member without slots becomes the replica of a primary."""

    member: str
    primary: str


@dataclass(frozen=True)
class Settle:
    """Open slots are brought to their end: a slot whose move was cut off goes on to `target`, who serves it then.

    `source` may be None where it is gone.
    """

    slots: tuple[int, ...]
    source: str | None
    target: str


@dataclass(frozen=True)
class MoveSlots:
    """A bounded batch of slots goes from one primary to another, with its blocks, by the cluster's own commands."""

    slots: tuple[int, ...]
    source: str
    target: str


@dataclass(frozen=True)
class Failover:
    """A replica takes its primary's place. `taken`: even though the primary is gone and the others do not agree."""

    replica: str
    taken: bool = False


@dataclass(frozen=True)
class Forget:
    """Every node forgets an id that no member has any more."""

    id: str


Step = StartShard | StopShard | Replace | Meet | Assign | Replicate | Settle | MoveSlots | Failover | Forget
