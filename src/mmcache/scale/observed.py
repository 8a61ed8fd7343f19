"""What is there: what the platform runs, and what the nodes say of themselves and of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SLOTS = 16384


@dataclass(frozen=True)
class Member:
    """A process or pod that the platform runs, or is about to: `place` 0, 1… of a shard. Roles change, places stay."""

    shard: int
    place: int
    host: str = ""
    """Where clients and the other nodes find it; "" = it has no address yet."""
    port: int = 0
    ready: bool = False
    """The platform says that it runs and answers."""
    leaving: bool = False
    """It is being stopped."""
    current: bool = True
    """It runs the version and the settings that are wanted."""
    machine: str = ""
    """The machine or Kubernetes node that it is on, where known."""
    ended: bool = False
    """The platform has proof that no process of it runs, and that one which comes is another: under a new id, empty."""

    @property
    def name(self) -> str:
        """Such as `2-0`: shard and place."""
        return f"{self.shard}-{self.place}"


@dataclass(frozen=True)
class Other:
    """What one node says of one node (a line of CLUSTER NODES)."""

    id: str
    host: str
    port: int
    flags: frozenset[str]
    """`master`, `slave`, `fail`, `fail?`, `handshake`, `noaddr`, `nofailover`, `myself`."""
    primary: str
    """The id of its primary; "" for a primary."""
    linked: bool
    epoch: int
    slots: frozenset[int]
    heard_ms: int = 0
    """When a node that is doubted was last heard, by the clock of who says so; 0 = never, or it is not doubted."""


@dataclass(frozen=True)
class NodeSeen:
    """A node that answered."""

    id: str
    """The forty hexadecimal digits; new with every process, since a process that lost its memory is a new node."""
    primary: str = ""
    """The id of its primary; "" = it is one."""
    in_sync: bool = True
    """A replica that has all its primary's blocks and hears of changes. True for a primary."""
    slots: frozenset[int] = frozenset()
    """That it serves, as it says itself."""
    importing: Mapping[int, str] = field(default_factory=dict)
    """Open slots that it is to get, and from which id."""
    migrating: Mapping[int, str] = field(default_factory=dict)
    """Open slots that it is to give, and to which id."""
    moving: bool = False
    """It is in a slot migration of the server's own (Valkey 9, CLUSTER MIGRATESLOTS), as source or target."""
    epoch: int = 0
    others: Mapping[str, Other] = field(default_factory=dict)
    """By id, itself included."""
    cluster_ok: bool = False
    """Its own `cluster_state`."""
    version: str = ""
    keys: int = 0
    used_bytes: int = 0
    max_bytes: int = 0
    """`maxmemory`; 0 = no limit."""
    requests: int = 0
    """Keys that were looked up for clients since its start. To get a block is one, and one for each piece of a large
    one; to put it is two, and one for each piece that is sent ahead, since its scripts look at what is there. A plain
    SET is none: a server does not tell a client's from a migration's."""
    hits: int = 0
    misses: int = 0
    evicted: int = 0
    heard_epoch: int = 0
    """The newest that it knows of, whosever it is."""
    history: str = ""
    """Whose changes a replica has, and `offset` how many bytes of them: comparable where the history is the same."""
    offset: int = 0
    unlinked_seconds: float = 0.0
    """For how long a replica has had no link to its primary; 0 = it has one, infinite = it never had."""
    unheard_seconds: Mapping[str, float] = field(default_factory=dict)
    """For how long it has heard nothing of those that it doubts, by id."""


@dataclass(frozen=True)
class Observed:
    """One look at everything."""

    members: tuple[Member, ...] = ()
    nodes: Mapping[str, NodeSeen] = field(default_factory=dict)
    """Those that answered, by the member's name."""
    at: float = 0.0
    """Seconds, monotonic."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Why the others did not, in words for people, by the member's name."""
