"""`ClusterSteps`: the steps of a plan, done to a `ClusterModel` command by command, cut off where a test wants."""

from __future__ import annotations

from collections.abc import Iterator

from mmcache.scale.observed import Observed
from mmcache.scale.steps import (
    Assign,
    Failover,
    Forget,
    Meet,
    MoveSlots,
    Replace,
    Replicate,
    Settle,
    StartShard,
    Step,
    StopShard,
)
from mmcache.testing.cluster_model import BAN, ClusterModel, Refused
from mmcache.testing.cluster_node import Acquaintance, ModelNode, mask, slots_in


class ClusterSteps:
    """What does steps to a model. atomic: slots move by the servers' own migrations (Valkey 9), else key by key."""

    def __init__(self, model: ClusterModel, *, atomic: bool = False) -> None:
        self.model, self.atomic = model, atomic

    def act(self, step: Step, seen: Observed, most: int | None = None) -> bool:
        """At most so many commands of it; whether it came to its end. Raises `Refused`."""
        return all(done != most for done, _ in enumerate(self._commands(step, seen), 1))

    def _commands(self, step: Step, seen: Observed) -> Iterator[None]:
        model = self.model
        match step:
            case StartShard():
                for place in range(step.members):
                    if f"{step.shard}-{place}" not in model.nodes:
                        model.start(f"{step.shard}-{place}")
                        yield
            case StopShard():
                for node in list(model.nodes.values()):
                    if node.shard == step.shard and node.place >= step.keep and not node.leaving:
                        self._stop(node)
                        yield
            case Replace():
                model.start(step.member, "booting")
                yield
            case Meet():
                newcomer, other = self._there(seen, step.newcomer), self._there(seen, step.acquainted)
                greeted = f"handshake-{newcomer.name}-{other.name}"
                newcomer.known[greeted] = Acquaintance(greeted, other.host, other.port, flags={"handshake"})
                yield
            case Assign():
                yield from self._assign(step, seen)
            case Replicate():
                yield from self._replicate(self._there(seen, step.member), self._there(seen, step.primary))
            case Failover():
                yield from self._failover(self._there(seen, step.replica), step.taken)
            case Forget():
                for name in seen.nodes:
                    node = self._there(seen, name)
                    if node.primary != step.id:
                        node.delete(step.id)
                        node.banned[step.id] = model.now + BAN
                    yield
            case Settle():
                source = None if step.source is None else self._there(seen, step.source)
                yield from self._settle(mask(step.slots), source, self._there(seen, step.target))
            case MoveSlots():
                yield from self._move(step, self._there(seen, step.source), self._there(seen, step.target))

    def _there(self, seen: Observed, name: str) -> ModelNode:
        """Who was seen there: another process of that name is not touched."""
        node = self.model.nodes.get(name)
        if node is None or not node.runs or node.unseen or name not in seen.nodes or seen.nodes[name].id != node.id:
            raise Refused(f"{name} does not answer")
        return node

    def _stop(self, node: ModelNode) -> None:
        node.leaving, node.wait = True, self.model.draw.randrange(1, 4)

    def _assign(self, step: Assign, seen: Observed) -> Iterator[None]:
        node, slots = self._there(seen, step.member), mask(step.slots)
        if node.primary:
            raise Refused("a replica gets no slots")
        for owner, theirs in node.table.items():
            holder = self.model.node(owner)
            if (
                theirs & slots
                and owner != node.id
                and holder is not None
                and holder.runs
                and holder.slots & theirs & slots
            ):
                raise Refused("somebody serves them")
        half = mask(step.slots[: len(step.slots) // 2])
        for some in (half, slots & ~half):
            for owner in node.table:
                if owner != node.id:
                    node.table[owner] &= ~some
            node.table[node.id] = node.table.get(node.id, 0) | some
            yield
        node.bump()
        yield

    def _replicate(self, node: ModelNode, primary: ModelNode) -> Iterator[None]:
        if node.primary == primary.id:
            return
        if node.slots or not node.knows(primary.id) or primary.primary:
            raise Refused("it cannot be a replica of that")
        node.blocks = 0
        yield
        node.primary, node.in_sync, node.synced, node.importing, node.migrating = primary.id, False, False, {}, {}
        yield

    def _failover(self, node: ModelNode, taken: bool) -> Iterator[None]:
        if not node.primary:
            return
        primary = self.model.node(node.primary)
        if not taken:
            if primary is None or not primary.slots or not node.reaches(primary) or not node.in_sync:
                raise Refused("its primary is not there, or serves nothing: elections are only held over slots")
            if not self.model.agreed(node):
                raise Refused("no majority")
            node.blocks = primary.blocks
        node.promoted()
        if primary is not None and node.reaches(primary) and node.id in primary.known:
            primary.known[node.id].epoch = node.epoch
            primary.believe(node.id, node.epoch, node.slots, self.model.migrates)
        yield

    def _move(self, step: MoveSlots, source: ModelNode, target: ModelNode) -> Iterator[None]:
        slots = mask(step.slots) & source.slots
        if mask(step.slots) & ~source.slots & ~target.slots:
            raise Refused("they are somebody else's")
        if target.primary or not (source.knows(target.id) and target.knows(source.id)) or not source.reaches(target):
            raise Refused("they do not know each other")
        if self.atomic:
            self.model.jobs.append((source.id, target.id, slots))
            yield
            self.model.turn(2)
            yield
        else:
            yield from self._migrate(slots, source, target)

    def _migrate(self, slots: int, source: ModelNode, target: ModelNode) -> Iterator[None]:
        """Slots that the source owns, key by key, some at a time."""
        if not source.reaches(target):
            raise Refused("MIGRATE does not get there")
        all_slots = sorted(slots_in(slots))
        for some in (all_slots[: len(all_slots) // 2], all_slots[len(all_slots) // 2 :]):
            target.importing.update(dict.fromkeys(some, source.id))
            yield
            source.migrating.update(dict.fromkeys(some, target.id))
            yield
            for part in (mask(some[::2]), mask(some[1::2])):
                target.blocks |= source.blocks & part
                source.blocks &= ~part
                yield
            for slot in some:
                target.importing.pop(slot, None)
            self._own(target, mask(some))
            target.newest = max(target.newest, source.newest, source.epoch)  # who does it sees to that
            target.bump()
            yield
            for slot in some:
                source.migrating.pop(slot, None)
            source.newest = max(source.newest, target.epoch)
            if target.id in source.known:
                source.known[target.id].epoch = target.epoch
            self._own(source, mask(some), target.id)
            if not source.slots and self.model.migrates:
                source.primary, source.in_sync, source.synced = target.id, False, False
            yield
            for other in self.model.nodes.values():
                if other.runs and other not in (source, target) and not other.primary and other.knows(target.id):
                    self._own(other, mask(some), target.id)
                    yield

    def _own(self, node: ModelNode, slots: int, id: str | None = None) -> None:
        """CLUSTER SETSLOT … NODE."""
        for owner in node.table:
            node.table[owner] &= ~slots
        id = id or node.id
        node.table[id] = node.table.get(id, 0) | slots

    def _settle(self, slots: int, source: ModelNode | None, target: ModelNode) -> Iterator[None]:
        if target.primary:
            raise Refused("a replica gets no slots")
        moving = 0 if source is None else slots & source.slots & ~target.slots
        if source is not None and moving:
            yield from self._migrate(moving, source, target)
        left = slots & ~moving
        if source is not None and source.importing:  # blocks that went ahead come back
            back = left & mask(source.importing) & target.slots
            target.blocks |= source.blocks & back
            source.blocks &= ~back
            yield
        others = [owner for owner, theirs in target.table.items() if owner != target.id and theirs & left]
        gone = [owner for owner in others if (node := self.model.node(owner)) is None or not node.alive]
        for owner in gone if source is None else []:
            taken = target.table[owner] & left
            self._own(target, taken)
            target.bump()
            yield
        for node in (target, source):
            if node is not None:
                node.importing = {slot: id for slot, id in node.importing.items() if not left >> slot & 1}
                node.migrating = {slot: id for slot, id in node.migrating.items() if not left >> slot & 1}
                yield
