"""`SlotMove`: a slot goes from one node of a cluster to another, key by key, and stops wherever a test wants it to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcache.lab.servers.process import Server
from mmcache.model.errors import TierError

_PAGE = 100


@dataclass
class SlotMove:
    """After `begin`, the source answers `ASK` for keys that it no longer has, and `TRYAGAIN` where a command names
    several keys of which some have gone; after `finish`, `MOVED`. Each step raises `TierError` when it is refused."""

    slot: int
    source: Server
    target: Server
    source_name: str
    target_name: str
    everyone: Sequence[Server]
    """All primaries, who must hear of it in the end."""

    def begin(self) -> None:
        """Both sides know that the slot is on its way; no key has moved yet."""
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.source_name)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target_name)

    def keys(self, count: int = _PAGE) -> list[bytes]:
        """Some that the source still has."""
        return list(self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, count))

    def move(self, *keys: bytes) -> None:
        """These keys go over; one that is gone meanwhile is no error."""
        if keys:
            secret = () if self.source.password is None else ("AUTH", self.source.password)
            self.source.ask("MIGRATE", self.target.host, self.target.public_port, "", 0, 5000, *secret, "KEYS", *keys)

    def finish(self) -> None:
        """The rest goes over, and the slot is the target's for everyone."""
        while keys := self.keys():
            self.move(*keys)
        for server in [self.target, self.source, *(other for other in self.everyone if other is not self.target)]:
            if server.alive:
                server.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self.target_name)

    def undo(self) -> None:
        """Leave the slot where most of it is: neither side is moving it any more."""
        for server in (self.source, self.target):
            server.ask("CLUSTER", "SETSLOT", self.slot, "STABLE")

    def whole(self) -> None:
        """All steps."""
        self.begin()
        try:
            self.finish()
        except TierError:
            self.undo()
            raise
