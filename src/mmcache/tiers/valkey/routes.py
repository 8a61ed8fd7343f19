"""Who is to be asked: the one server, or whoever holds the key's slot, or whom the sentinels call master."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from mmcache.model.errors import TierError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.dial import Dialer
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.look import Look
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.words import Command

READONLY: Command = ("READONLY",)
"""What makes a replica of a cluster answer."""


class Peers:
    """All nodes met so far, each once for what it is asked as."""

    def __init__(self, settings: SharedSettings, dialer: Dialer, monotonic: Callable[[], float]) -> None:
        self._settings, self.dialer, self.monotonic = settings, dialer, monotonic
        self._known: dict[tuple[Node, Command | None], Peer] = {}
        self._closed = False

    def at(self, node: Node, role: Command | None = None) -> Peer:
        """The one at `node`; for `role` see `Dialer.dial`."""
        peer = self._known.get((node, role))
        if peer is None:
            made = Peer(node, self.dialer, self._settings, self.monotonic, role)
            if self._closed:
                made.close()
            peer = self._known.setdefault((node, role), made)
        return peer

    def all(self) -> list[Peer]:
        """In no order."""
        return list(self._known.values())

    def close(self) -> None:
        """Close all, and what is met from now on as soon as it was used."""
        self._closed = True
        for peer in self.all():
            peer.close()

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forget those that are not among `nodes`."""
        kept = set(nodes)
        for known, peer in list(self._known.items()):
            if known[0] not in kept:
                del self._known[known]
                peer.close()


class Routes(ABC):
    """Where to ask, and how to look again."""

    mode: str

    def __init__(self, address: Address, peers: Peers, timeout_seconds: float) -> None:
        self.peers = peers
        self.seeds = list(address.hosts)
        self.timeout_seconds = timeout_seconds
        self.failure = ""
        """Why the last look saw nothing; empty when it did."""
        self.look = Look(self._look, peers.monotonic)

    @abstractmethod
    def find(self, key: bytes | None, replica: bool, limit: Limit) -> Peer:
        """Who has `key` (None = anybody). Raises `TierError` when that is not known, nor becomes so in time."""

    @abstractmethod
    def primaries(self, limit: Limit) -> list[Node]:
        """All primaries. Raises `TierError` as `find`."""

    @abstractmethod
    def _look(self) -> None:
        """Learn where things are now. Sets `failure`."""

    def peer(self, node: Node) -> Peer:
        """The primary at `node`."""
        return self.peers.at(node)

    def moved(self, slot: int, node: Node) -> Peer:
        """Who has that slot from now on."""
        raise TierError("it is a cluster: write ?cluster=true behind the address")

    @property
    def may_change(self) -> bool:
        """Whether looking again can help."""
        return True

    def _first(self, limit: Limit) -> None:
        """Look for the first time; after a failure, nobody waits for the next look. Raises `TierError`."""
        if self.failure:
            self.look.soon()
            raise TierError(self.failure)
        # A resolver may hang for long: one call has waited, the next ones do not. But who comes when another's look has
        # just ended need not wait for one of its own.
        if not self.look.now(limit) and not self.look.count:
            self.failure = self.failure or "nobody told in time where the data is"
        if self.failure:
            raise TierError(self.failure)


class OneServer(Routes):
    """No choice."""

    mode = "standalone"

    def find(self, key: bytes | None, replica: bool, limit: Limit) -> Peer:
        """See `Routes.find`."""
        return self.peers.at(self.seeds[0])

    def primaries(self, limit: Limit) -> list[Node]:
        """See `Routes.primaries`."""
        return self.seeds[:1]

    @property
    def may_change(self) -> bool:
        """See `Routes.may_change`."""
        return False

    def _look(self) -> None:
        pass
