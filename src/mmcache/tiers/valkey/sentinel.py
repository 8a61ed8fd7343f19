"""The route that sentinels tell: which server is the master now."""

from __future__ import annotations

from typing import Any

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.replies import Refusal
from mmcache.tiers.valkey.routes import Peers, Routes
from mmcache.tiers.valkey.slots import text
from mmcache.tiers.valkey.words import Command

_ROLE: Command = ("ROLE",)
"""What a new connection asks first: sentinels may be late, and then name one that is no master any more."""


class Sentinels(Routes):
    """The sentinels are asked in turn, the one that knew last first."""

    mode = "sentinel"

    def __init__(self, address: Address, peers: Peers, timeout_seconds: float) -> None:
        super().__init__(address, peers, timeout_seconds)
        assert address.master is not None
        self._name = address.master
        self._master: Node | None = None

    def find(self, key: bytes | None, replica: bool, limit: Limit) -> Peer:
        """See `Routes.find`."""
        if self._master is None:
            self._first(limit)
        assert self._master is not None
        return self.peers.at(self._master, _ROLE)

    def primaries(self, limit: Limit) -> list[Node]:
        """See `Routes.primaries`."""
        return [self.find(None, False, limit).node]

    def peer(self, node: Node) -> Peer:
        """See `Routes.peer`."""
        return self.peers.at(node, _ROLE)

    def _look(self) -> None:
        failures: list[str] = []
        limit = Limit(self.peers.monotonic, self.timeout_seconds)
        for node in list(self.seeds):
            try:
                master = self._ask(node, limit.part(0.5))
            except TierError as error:
                failures.append(f"sentinel {node}: {error}")
                continue
            self.seeds.remove(node)
            self.seeds.insert(0, node)
            self._master, self.failure = master, ""
            self.peers.keep([master])
            return
        self.failure = "; ".join(failures)

    def _ask(self, node: Node, limit: Limit) -> Node:
        wire = self.peers.dialer.dial_sentinel(node, limit)
        try:
            wire.begin([("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)])
            wire.settle(limit)
        finally:
            wire.close()
        if not wire.replies:
            raise TierError(wire.fault)
        return _place(wire.replies[0], self._name)


def _place(reply: Any, name: str) -> Node:
    if reply is None:
        raise TierError(f"it knows no master {name!r}; see the name behind the / of the address")
    if isinstance(reply, Refusal):
        raise TierError(reply)
    try:
        host, port = reply
        return Node(text(host), int(port))
    except (TypeError, ValueError, UnicodeDecodeError) as error:
        raise TierError(f"it answers with {reply!r:.60}; is it a sentinel?") from error
