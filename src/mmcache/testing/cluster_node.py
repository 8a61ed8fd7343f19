"""One node of a `ClusterModel`: what it is to its platform, and what it believes of the others.

Sets of slots are whole numbers, one bit a slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from mmcache.scale.observed import SLOTS

ALL = (1 << SLOTS) - 1


@dataclass
class Acquaintance:
    """What a node knows of another; of itself it is not asked."""

    id: str
    host: str
    port: int
    primary: str = ""
    epoch: int = 0
    flags: set[str] = field(default_factory=set)
    silent: int = 0
    heard: int = 0
    """The tick at which it last answered."""


@dataclass
class ModelNode:
    """A process: a member of the platform, and what it believes."""

    name: str
    id: str
    host: str
    port: int
    stage: str = "up"
    """`pending` (no address), `booting`, `up`, `dead`."""
    hung: bool = False
    unseen: bool = False
    """Whoever steers cannot reach it; the other nodes can."""
    side: int = 0
    """Of a network that has come apart: nodes reach those of their own side, whoever steers reaches all."""
    ready: bool = True
    leaving: bool = False
    current: bool = True
    machine: str = ""
    wait: int = 0
    """Ticks until the platform's next move."""
    primary: str = ""
    in_sync: bool = True
    deaf: bool = False
    """It hears its primary's changes no more, though the two can talk: a full buffer, a wrong password."""
    linked: float = float("-inf")
    """The tick at which a replica last had a link to its primary."""
    lured: int = 0
    """For how many ticks another process has been at its primary's address, which will fill it."""
    synced: bool = False
    """A replica that has had a primary's blocks: without, its data is too old for it to be elected."""
    epoch: int = 0
    newest: int = 0
    """The newest epoch that it has heard of."""
    table: dict[str, int] = field(default_factory=dict)
    """Whose which slots are, as it believes."""
    known: dict[str, Acquaintance] = field(default_factory=dict)
    banned: dict[str, int] = field(default_factory=dict)
    importing: dict[int, str] = field(default_factory=dict)
    migrating: dict[int, str] = field(default_factory=dict)
    blocks: int = 0

    @property
    def shard(self) -> int:
        """Of its name."""
        return int(self.name.partition("-")[0])

    @property
    def place(self) -> int:
        """Of its name."""
        return int(self.name.partition("-")[2])

    @property
    def runs(self) -> bool:
        """Whether others can talk to it."""
        return self.stage == "up" and not self.hung

    def reaches(self, other: ModelNode) -> bool:
        """Whether it can talk to another."""
        return other.runs and self.side == other.side

    @property
    def alive(self) -> bool:
        """Whether it will answer again, with its memory."""
        return self.stage == "up"

    @property
    def slots(self) -> int:
        """That it serves, as it says itself."""
        return 0 if self.primary else self.table.get(self.id, 0)

    def knows(self, id: str) -> bool:
        """Whether it talks to this id."""
        return id in self.known and not self.known[id].flags & {"handshake", "noaddr"}

    def believe(self, owner: str, epoch: int, slots: int, migrates: bool) -> None:
        """Somebody claims slots with an epoch: those of lower epochs lose them (clusterUpdateSlotsConfigWith)."""
        mine = self.primary or self.id
        had, lost = self.table.get(mine, 0), 0
        slots &= ~mask(self.importing)
        for other, theirs in list(self.table.items()):
            if other == owner or not theirs & slots:
                continue
            if (self.epoch if other == self.id else self.known[other].epoch if other in self.known else 0) < epoch:
                lost |= theirs & slots if other == mine else 0
                self.table[other] = theirs & ~slots
            else:
                slots &= ~theirs
        self.table[owner] = self.table.get(owner, 0) | slots
        if lost and not self.table[mine] and (migrates or lost == had):
            self.synced = self.synced and bool(self.primary)
            self.primary, self.in_sync, self.migrating, self.importing = owner, False, {}, {}
        elif lost and not self.primary:
            self.blocks &= ~lost
            self.migrating = {slot: to for slot, to in self.migrating.items() if not lost >> slot & 1}

    def promoted(self) -> None:
        """It takes its primary's place."""
        old, self.primary = self.primary, ""
        self.newest = self.epoch = self.newest + 1
        self.table[self.id] = self.table.get(self.id, 0) | self.table.pop(old, 0)
        self.in_sync, self.importing, self.migrating = True, {}, {}

    def bump(self) -> None:
        """Its epoch becomes the newest, unless it is."""
        if self.epoch == 0 or self.epoch != self.newest:
            self.newest = self.epoch = self.newest + 1

    def delete(self, id: str) -> None:
        """It knows an id no more."""
        self.known.pop(id, None)
        self.table.pop(id, None)


@lru_cache(maxsize=4096)
def slots_in(bits: int) -> frozenset[int]:
    """The slots of a number."""
    return frozenset(slot for slot, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def mask(slots: Iterable[int]) -> int:
    """The number of some slots."""
    bits = bytearray(SLOTS // 8)
    for slot in slots:
        bits[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(bits, "little")
