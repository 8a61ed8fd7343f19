"""The routes of a cluster: who holds which slot, learned from any node that answers, corrected by every MOVED."""

from __future__ import annotations

from itertools import count

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import BusyError, Peer
from mmcache.tiers.valkey.routes import READONLY, Peers, Routes
from mmcache.tiers.valkey.slots import Shard, Slots, read_slots, slot_of


class Cluster(Routes):
    """Slots of all shards. Threads share it; a map is replaced whole."""

    mode = "cluster"

    def __init__(self, address: Address, peers: Peers, timeout_seconds: float) -> None:
        super().__init__(address, peers, timeout_seconds)
        self._slots: Slots | None = None
        self._turn = count()

    def find(self, key: bytes | None, replica: bool, limit: Limit) -> Peer:
        """See `Routes.find`."""
        slots = self._known(limit)
        if key is None:
            return self._any(slots)
        slot = slot_of(key)
        shard = slots[slot]
        if shard is None:
            self.look.soon()
            raise TierError(f"no node serves slot {slot}; see that the cluster has all slots")
        if replica and shard.replicas:
            turn = next(self._turn)
            for n in range(len(shard.replicas)):
                peer = self.peers.at(shard.replicas[(turn + n) % len(shard.replicas)], READONLY)
                if peer.breaker.due(self.peers.monotonic()):
                    return peer
        return self.peers.at(shard.primary)

    def _any(self, slots: Slots) -> Peer:
        peers = [self.peers.at(node) for node in dict.fromkeys(shard.primary for shard in slots if shard)]
        if not peers:
            raise TierError("no node of the cluster serves any slot; see that it has them")
        return next((peer for peer in peers if not peer.breaker.open), peers[0])

    def primaries(self, limit: Limit) -> list[Node]:
        """See `Routes.primaries`."""
        return list(dict.fromkeys(shard.primary for shard in self._known(limit) if shard is not None))

    def moved(self, slot: int, node: Node) -> Peer:
        """See `Routes.moved`."""
        slots = self._slots
        if slots is not None and (slots[slot] is None or slots[slot].primary != node):  # type: ignore[union-attr]
            slots[slot] = next((shard for shard in slots if shard and shard.primary == node), Shard(node))
        self.look.soon()
        return self.peers.at(node)

    def _known(self, limit: Limit) -> Slots:
        if self._slots is None:
            self._first(limit)
        assert self._slots is not None
        return self._slots

    def _look(self) -> None:
        """Ask one node after another until one tells; those that failed a moment ago last, or not at all."""
        known = dict.fromkeys(node for shard in self._slots or () if shard for node in (shard.primary, *shard.replicas))
        nodes = list(known) or self.seeds
        turn = next(self._turn) % len(nodes)
        failures: list[str] = []
        limit = Limit(self.peers.monotonic, self.timeout_seconds)
        for node in dict.fromkeys([*nodes[turn:], *nodes[:turn], *self.seeds]):
            try:
                slots = self._ask(node, limit.part(0.5))
            except TierError as error:
                failures.append(str(error))
                continue
            self._slots, self.failure = slots, ""
            told = (place for shard in slots if shard for place in (shard.primary, *shard.replicas))
            self.peers.keep([*self.seeds, *told])
            return
        self.failure = "; ".join(failures)

    def _ask(self, node: Node, limit: Limit) -> Slots:
        peer = self.peers.at(node)
        rests = peer.rests()
        if rests is not None:
            raise TierError(f"{node}: {rests}")
        try:
            wire = peer.take(limit)
        except BusyError as error:
            raise TierError(f"{node}: {error}") from error
        except TierError as error:
            peer.breaker.failed(self.peers.monotonic(), str(error))
            raise TierError(f"{node}: {error}") from error
        wire.begin([("CLUSTER", "SLOTS")])
        wire.settle(limit)
        replies, fault = wire.replies, wire.fault
        peer.give(wire)  # now it is another's
        if fault is not None:
            peer.breaker.failed(self.peers.monotonic(), fault)
            raise TierError(f"{node}: {fault}")
        peer.breaker.served()
        slots = read_slots(replies[0], node)
        if not any(slots):
            raise TierError(f"{node} knows no node that serves a slot")
        return slots
