"""`ClusterModel`: a cluster without servers, as its nodes and its platform would behave. For tests of who steers one.

What the nodes do is that of Valkey's cluster: each has a view of its own, which gossip brings up to date later; the
higher epoch is believed about a slot; a majority of primaries declares one dead and elects a replica; an id that was
forgotten is not heard of for a while; a node that has another id than expected makes the old id `noaddr`. Time is
`turn`, one tick each. Sets of slots are whole numbers, one bit a slot; each slot has one block, or none.
"""

from __future__ import annotations

import random

from mmcache.scale.observed import SLOTS, Member, NodeSeen, Observed, Other
from mmcache.scale.views import NOBODY
from mmcache.testing.cluster_node import ALL, Acquaintance, ModelNode, mask, slots_in

TIMEOUT = 3
"""Ticks of silence after which a node is doubted."""
RESTART = 8
"""Ticks after which a platform starts a dead member again."""
LURE = 4
"""Ticks after which an empty newcomer at a dead primary's address fills its replicas."""
DOUBT = frozenset({"fail", "fail?"})
BAN = 12
"""Ticks for which an id that was forgotten is not heard of."""


class Refused(Exception):
    """A node says no to a command, or is not there."""


class ClusterModel:
    """All nodes, what they say to each other, and the platform that starts and ends them."""

    def __init__(
        self, seed: int = 0, *, migrates: bool = False, moves: bool = True, proves: bool = False, machines: int = 6
    ) -> None:
        """migrates: `cluster-allow-replica-migration`. moves: a member that starts anew has another address. proves:
        the platform knows that a dead process has ended."""
        self.draw = random.Random(seed)
        self.migrates, self.moves, self.proves, self.machines = migrates, moves, proves, machines
        self.nodes: dict[str, ModelNode] = {}
        self.jobs: list[tuple[str, str, int]] = []
        """Migrations of the servers' own: source and target by id, and slots."""
        self.votes: dict[str, int] = {}
        self.block_bytes = 0
        self.now = 0
        self.started = 0

    def observed(self) -> Observed:
        """One look."""
        members = tuple(
            Member(node.shard, node.place, "" if node.stage == "pending" else node.host,
                   0 if node.stage == "pending" else node.port, node.ready and node.stage == "up", node.leaving,
                   node.current, node.machine, self.proves and node.stage == "dead")
            for node in self.nodes.values()
        )  # fmt: skip
        seen = {node.name: self._says(node) for node in self.nodes.values() if node.runs and not node.unseen}
        return Observed(members, seen, float(self.now))

    def _says(self, node: ModelNode) -> NodeSeen:
        others = {
            other.id: Other(other.id, other.host, other.port, frozenset(other.flags), other.primary,
                            other.silent == 0, other.epoch, slots_in(self._claimed(node, other)))
            for other in node.known.values()
        }  # fmt: skip
        others[node.id] = Other(
            node.id, node.host, node.port, frozenset({"myself"}), node.primary, True, node.epoch, slots_in(node.slots)
        )
        whole = sum(bits.bit_count() for bits in node.table.values()) == SLOTS
        ok = whole and not any(
            "fail" in node.known[id].flags for id in node.table if node.table[id] and id in node.known
        )
        heard = [id for id in node.table if node.table[id] and id in node.known and not node.known[id].flags & DOUBT]
        ok = ok and 2 * (len(heard) + bool(node.slots)) > self._size(node)
        moving = any(node.id in job[:2] for job in self.jobs)
        keys = node.blocks.bit_count()
        unheard = {known.id: float(self.now - known.heard) for known in node.known.values()
                   if known.heard and known.flags & {*DOUBT, "noaddr"}}  # fmt: skip
        return NodeSeen(node.id, node.primary, node.in_sync, slots_in(node.slots), dict(node.importing),
                        dict(node.migrating), moving and not node.primary, node.epoch, others, ok,
                        keys=keys, used_bytes=keys * self.block_bytes,
                        heard_epoch=max(node.newest, node.epoch), unheard_seconds=unheard,
                        unlinked_seconds=self.now - node.linked if node.primary else 0.0)  # fmt: skip

    def _claimed(self, node: ModelNode, other: Acquaintance) -> int:
        return 0 if other.primary else node.table.get(other.id, 0)

    def node(self, id: str) -> ModelNode | None:
        """The process that has an id."""
        return next((node for node in self.nodes.values() if node.id == id and node.stage != "dead"), None)

    def truly(self) -> dict[str, int]:
        """Slots by the name of who serves them: the highest epoch of which anybody who lives has heard."""
        claims: dict[str, tuple[int, int]] = {}
        for node in self.nodes.values():
            if node.alive:
                for id, known in node.known.items():
                    if node.table.get(id) and known.epoch >= claims.get(id, (0, 0))[0]:
                        claims[id] = known.epoch, node.table[id]
        claims |= {node.id: (node.epoch, node.slots) for node in self.nodes.values() if node.alive}
        here = {node.id: node.name for node in self.nodes.values() if node.alive}
        left, found = ALL, {}
        for id in sorted(claims, key=lambda id: (claims[id][0], id in here, id), reverse=True):
            slots = claims[id][1] & left
            left &= ~slots
            if slots and id in here:
                found[here[id]] = slots
        return found

    def reachable_blocks(self) -> int:
        """Blocks that a client would find: at the owner, or where it sends the client on to."""
        found = 0
        for name, slots in self.truly().items():
            node = self.nodes[name]
            found |= node.blocks & slots
            for slot, to in node.migrating.items():
                target = self.node(to)
                if target is not None and target.alive and target.importing.get(slot) == node.id:
                    found |= target.blocks & slots & 1 << slot
        return found

    def put(self, blocks: int) -> None:
        """Clients put blocks: who serves their slots has them."""
        for name, slots in self.truly().items():
            node = self.nodes[name]
            if node.runs:
                node.blocks |= blocks & slots & node.slots & ~mask(node.migrating)

    def drop(self, blocks: int) -> None:
        """Clients drop blocks: who serves them, and who hears of it, has them no more."""
        for name in self.truly():
            owner = self.nodes[name]
            for node in self.nodes.values():
                if node is owner or (node.primary == owner.id and node.in_sync):
                    node.blocks &= ~(blocks & owner.slots)

    def start(self, name: str, stage: str = "pending", *, current: bool = True) -> ModelNode:
        """A new process, under a new id."""
        self.started += 1
        old = self.nodes.get(name)
        shard, _, place = name.partition("-")
        host = f"10.0.{self.started}.1" if self.moves or old is None else old.host
        machine = f"m{(int(shard) + int(place)) % self.machines}"
        id, wait = f"{self.started:04d}{self.draw.getrandbits(144):036x}", self.draw.randrange(1, 4)
        node = ModelNode(name, id, host, 6379, stage, ready=stage == "up", current=current, machine=machine, wait=wait)
        self.nodes[name] = node
        return node

    def kill(self, name: str) -> None:
        """The platform will start it again, empty."""
        node = self.nodes[name]
        if node.stage == "up":
            node.stage, node.ready, node.hung, node.wait = "dead", False, False, RESTART

    def turn(self, ticks: int = 1) -> None:
        """Time passes."""
        for _ in range(ticks):
            self.now += 1
            self._platform()
            running = [node for node in self.nodes.values() if node.runs]
            self._migrate()
            for node in running:
                self._greet(node)
                self._ping(node)
            for node in running:
                self._judge(node)
            for node in running:
                self._elect(node)
                self._follow(node)

    def _platform(self) -> None:
        for node in list(self.nodes.values()):
            if node.stage == "up" and not node.leaving:
                node.ready = True
                continue
            node.wait -= 1
            if node.wait > 0:
                continue
            if node.leaving:
                del self.nodes[node.name]
            elif node.stage == "dead":
                self.start(node.name, "booting", current=node.current)
            else:
                node.stage = "booting" if node.stage == "pending" else "up"
                node.wait = 1

    def _at(self, known: Acquaintance) -> ModelNode | None:
        for node in self.nodes.values():
            if (node.host, node.port) == (known.host, known.port) and node.stage == "up":
                return node
        return None

    def _greet(self, node: ModelNode) -> None:
        for known in [known for known in node.known.values() if "handshake" in known.flags]:
            del node.known[known.id]
            peer = self._at(known)
            if peer is not None and node.reaches(peer) and peer is not node:
                node.known[peer.id] = Acquaintance(peer.id, peer.host, peer.port, peer.primary, peer.epoch)
                if self.draw.random() < 0.8:  # else the other one has not understood
                    peer.known.setdefault(
                        node.id, Acquaintance(node.id, node.host, node.port, node.primary, node.epoch)
                    )

    def _ping(self, node: ModelNode) -> None:
        for known in list(node.known.values()):
            if "noaddr" in known.flags or known.id not in node.known or self.draw.random() < 0.3:
                continue
            peer = self._at(known)
            if peer is not None and peer.id != known.id and node.reaches(peer):
                known.flags.add("noaddr")
            elif peer is None or not node.reaches(peer):
                known.silent += 1
            else:
                known.silent, known.heard = 0, self.now
                known.flags -= DOUBT
                if peer.knows(node.id):
                    self._hear(peer, node)
                self._hear(node, peer)

    def _hear(self, node: ModelNode, peer: ModelNode) -> None:
        """What a message of `peer` tells `node`, which knows it."""
        known = node.known[peer.id]
        node.newest = max(node.newest, peer.newest, peer.epoch)
        known.epoch, known.primary, known.host, known.port = peer.epoch, peer.primary, peer.host, peer.port
        if peer.primary:
            node.table.pop(peer.id, None)
            if node.primary == peer.id and peer.primary in node.known:  # no replica of a replica
                node.primary, node.in_sync = peer.primary, False
        else:
            node.believe(peer.id, peer.epoch, peer.slots, self.migrates)
            if peer.epoch == node.epoch and not node.primary and node.id < peer.id:
                node.newest = node.epoch = node.newest + 1
            for owner, theirs in node.table.items():  # an UPDATE for who claims what is not its own any more
                epoch = node.epoch if owner == node.id else node.known[owner].epoch if owner in node.known else 0
                news = owner in peer.known and epoch > max(peer.epoch, peer.known[owner].epoch)
                if owner != peer.id and theirs & peer.slots and news:
                    peer.known[owner].epoch = epoch
                    peer.newest = max(peer.newest, epoch)
                    peer.believe(owner, epoch, theirs, self.migrates)
        for told in list(peer.known.values()):
            if told.id == node.id or told.flags & {"handshake", "noaddr"} or node.banned.get(told.id, 0) > self.now:
                continue
            if told.id not in node.known:
                hearsay = NOBODY if told.primary else ""  # it is said that it is a replica, and not whose
                node.known[told.id] = Acquaintance(told.id, told.host, told.port, hearsay)

    def _judge(self, node: ModelNode) -> None:
        for known in node.known.values():
            if known.silent >= TIMEOUT and "fail" not in known.flags:
                known.flags.add("fail?")
                sure = [voter for voter in self._voters(node) if (seen := voter.known.get(known.id)) is not None
                        and (seen.flags & DOUBT or seen.silent >= TIMEOUT)]  # fmt: skip
                if 2 * len(sure) > self._size(node):
                    for other in self.nodes.values():
                        if node.reaches(other) and known.id in other.known and (other is node or node.knows(other.id)):
                            other.known[known.id].flags = (other.known[known.id].flags - {"fail?"}) | {"fail"}

    def _size(self, node: ModelNode) -> int:
        return sum(1 for slots in node.table.values() if slots)

    def _voters(self, node: ModelNode) -> list[ModelNode]:
        """Primaries that a node can ask."""
        return [
            other
            for other in self.nodes.values()
            if node.reaches(other) and other.slots
            if other is node or (node.knows(other.id) and other.knows(node.id))
        ]

    def _elect(self, node: ModelNode) -> None:
        dead = node.known.get(node.primary)
        if dead is None or "fail" not in dead.flags or not node.table.get(node.primary):
            return
        if node.deaf or not node.synced:  # too old for the others
            return
        voted = self.votes.get(node.primary, -BAN)  # for one of its replicas, and for no other until that has failed
        if self.now - voted > 2 * TIMEOUT and self.draw.random() > 0.3 and self.agreed(node):
            self.votes[node.primary] = self.now
            node.promoted()

    def agreed(self, node: ModelNode) -> bool:
        """Whether a majority of primaries lets it take its primary's place; it hears their epochs then."""
        voters = self._voters(node)
        node.newest = max([node.newest, *(voter.newest for voter in voters)])
        return 2 * len(voters) > self._size(node)

    def _follow(self, node: ModelNode) -> None:
        if node.primary:
            primary = self.node(node.primary)
            linked = primary is not None and node.reaches(primary) and not primary.primary and node.knows(primary.id)
            linked = linked and not node.deaf
            node.linked = self.now if linked else node.linked
            node.in_sync = linked and (node.in_sync or self.draw.random() < 0.5)
            if node.in_sync and primary is not None:
                node.blocks, node.synced = primary.blocks, True
            known = node.known.get(node.primary)
            other = self._at(known) if known is not None and primary is None else None
            found = other is not None and node.reaches(other) and not other.primary
            node.lured = node.lured + 1 if found else 0
            if node.lured > LURE and other is not None:  # a link is to an address, not to an id
                node.blocks, node.linked = other.blocks, self.now

    def _migrate(self) -> None:
        for job in list(self.jobs):
            source, target = self.node(job[0]), self.node(job[1])
            if (
                source is None
                or target is None
                or not (source.runs and source.reaches(target))
                or source.primary
                or target.primary
            ):
                self.jobs.remove(job)
            elif self.draw.random() < 0.6:
                self.jobs.remove(job)
                self.hand_over(source, target, job[2] & source.slots)

    def hand_over(self, source: ModelNode, target: ModelNode, slots: int) -> None:
        """Slots and their blocks change hands in one moment."""
        target.blocks |= source.blocks & slots
        target.newest = max(target.newest, source.newest)
        target.table[target.id] = target.table.get(target.id, 0) | slots
        for other in list(target.table):
            if other != target.id:
                target.table[other] &= ~slots
        target.newest = target.epoch = max(target.newest, target.epoch) + 1
        if target.id in source.known:
            source.known[target.id].epoch = target.epoch
            source.believe(target.id, target.epoch, slots, self.migrates)
