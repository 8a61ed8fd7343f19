"""A model of a cluster, steered by the product's own `plan`; at each step what must never happen is looked for."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field

from mmcache.scale.observed import SLOTS, Observed
from mmcache.scale.plan import plan
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase, Plan
from mmcache.scale.steps import Assign, Failover, Forget, MoveSlots, Replace, Settle, StartShard, Step, StopShard
from mmcache.testing.cluster_model import ClusterModel, Refused
from mmcache.testing.cluster_node import ALL, Acquaintance, ModelNode, mask, slots_in
from mmcache.testing.cluster_steps import ClusterSteps

MOST_SLOTS = 4096
CALM = 12
"""Turns without a step, after which none is to be expected: an id comes back by gossip, and is to be agreed on."""


@dataclass
class Steered:
    """`turn` does what the controller does, and looks at the step before and after."""

    model: ClusterModel
    spec: ClusterSpec
    wanted: int
    atomic: bool = False
    most_slots: int = MOST_SLOTS
    told: list[Plan] = field(default_factory=list)

    def turn(self, cut: int | None = None) -> Plan:
        """Look, plan, do at most `cut` commands of the step, and let a tick pass."""
        seen = self.model.observed()
        decided = plan(self.spec, self.wanted, seen, most_slots=self.most_slots)
        if len(self.told) % 8 == 0:
            assert decided == plan(self.spec, self.wanted, seen, most_slots=self.most_slots)
        assert decided.reason.isalnum()
        assert decided.message
        self.told.append(decided)
        if decided.step is not None:
            self.allowed(decided.step, seen)
            before, owners = self.model.reachable_blocks(), self.model.truly()
            alive = {node.id for node in self.model.nodes.values() if node.alive}
            with contextlib.suppress(Refused):
                ClusterSteps(self.model, atomic=self.atomic).act(decided.step, seen, cut)
            dead = alive - {node.id for node in self.model.nodes.values() if node.alive}
            if not (isinstance(decided.step, Failover) or (isinstance(decided.step, MoveSlots) and dead)):
                missing = before & ~self.model.reachable_blocks()
                assert not missing, f"{missing.bit_count()} blocks are lost by {decided}, owned by {list(owners)}"
        self.model.turn()
        return decided

    def allowed(self, step: Step, seen: Observed) -> None:
        """Nothing that would lose blocks, or take a shard out of service."""
        model, serving = self.model, self.model.truly()
        match step:
            case Replace():
                assert step.member not in serving, "it serves slots"
                if step.member in seen.nodes and seen.nodes[step.member].in_sync:
                    peers = [node for node in model.nodes.values()
                             if node.shard == model.nodes[step.member].shard and node.name != step.member]  # fmt: skip
                    if any(peer.name in serving for peer in peers):
                        assert all(peer.name in seen.nodes and not peer.leaving for peer in peers)
                        assert all(seen.nodes[peer.name].in_sync for peer in peers), "it is one of two"
            case StopShard():
                stopped = [n for n in model.nodes.values() if n.shard == step.shard and n.place >= step.keep]
                assert not {node.name for node in stopped} & serving.keys(), "it serves slots"
            case Assign():
                for name, slots in serving.items():  # what was just given it, of which nobody has heard, is empty
                    taken = slots & mask(step.slots) & model.nodes[name].blocks
                    assert name == step.member or not taken, f"{name} serves them, or will again"
            case MoveSlots():
                target, source = model.nodes[step.target], model.nodes[step.source]
                assert target.runs
                assert target.ready
                assert not target.leaving
                assert not target.primary
                assert not source.primary
                assert 0 < len(step.slots) <= MOST_SLOTS
                assert set(step.slots) <= seen.nodes[step.source].slots
            case Settle():
                assert not model.nodes[step.target].primary
            case Forget():
                holder = model.node(step.id)
                assert holder is None or not holder.alive, "it lives"
            case Failover():
                heir = model.nodes[step.replica]
                followed = model.node(heir.primary)
                assert not step.taken or followed is None or not followed.alive, "its primary lives"
                if step.taken and heir.primary in heir.known:
                    theirs, epoch = heir.table.get(heir.primary, 0), heir.known[heir.primary].epoch
                    elected = [n.name for n in model.nodes.values() if n.alive and n.slots & theirs and n.epoch > epoch]
                    assert not elected, f"{elected} took over from it already"
            case StartShard():
                assert step.shard < max(self.wanted, 3, *(n.shard + 1 for n in model.nodes.values()), 0)

    def settle(self, most: int = 400) -> Plan:
        """Until nothing is left to do. Raises `AssertionError` when it does not come to an end."""
        calm = 0
        for _ in range(most):
            decided = self.turn()
            done = decided.step is None and decided.phase in (Phase.STEADY, Phase.BLOCKED)
            calm = calm + 1 if done else 0
            if calm == CALM:
                return decided
        last = "\n".join(f"{one.phase} {one.reason}: {one.message} {str(one.step)[:80]}" for one in self.told[-12:])
        raise AssertionError(f"no end after {most} turns:\n{last}")

    def whole(self, shards: int) -> None:
        """Everything is as it is wanted."""
        model, serving = self.model, self.model.truly()
        assert sum(bits.bit_count() for bits in serving.values()) == SLOTS
        counts = {model.nodes[name].shard: bits.bit_count() for name, bits in serving.items()}
        assert sorted(counts) == list(range(shards))
        assert len(counts) == len(serving)
        assert max(counts.values()) - min(counts.values()) <= 1
        names = {f"{shard}-{place}" for shard in range(shards) for place in range(1 + self.spec.replicas)}
        assert set(model.nodes) == names
        ids = {node.id for node in model.nodes.values()}
        for node in model.nodes.values():
            assert node.runs
            assert node.current
            assert node.in_sync
            assert not node.importing
            assert not node.migrating
            assert set(node.known) | {node.id} == ids
            if node.primary:
                primary = model.node(node.primary)
                assert primary is not None
                assert primary.name in serving
                assert primary.shard == node.shard


def grown(model: ClusterModel, shards: int, replicas: int, draw: random.Random) -> None:
    """A cluster that runs, as if it always had: slots even, everyone knows everyone."""
    for shard in range(shards):
        for place in range(1 + replicas):
            model.start(f"{shard}-{place}", "up")
    left = ALL
    for shard in range(shards):
        primary = model.nodes[f"{shard}-{draw.randrange(1 + replicas)}"]
        low, high = SLOTS * shard // shards, SLOTS * (shard + 1) // shards
        mine = ((1 << (high - low)) - 1) << low
        left &= ~mine
        primary.table[primary.id], primary.epoch = mine, shard + 1
        primary.blocks = mine & draw.getrandbits(SLOTS)
        for node in model.nodes.values():
            node.newest = shards
            if node.shard == shard and node is not primary:
                node.primary = primary.id
    assert not left
    acquaint(model)


def acquaint(model: ClusterModel) -> None:
    """Everyone knows everyone and whose the slots are."""
    for node in model.nodes.values():
        for other in model.nodes.values():
            if other is not node:
                node.known[other.id] = Acquaintance(other.id, other.host, other.port, other.primary, other.epoch)
                if not other.primary:
                    node.table[other.id] = other.table.get(other.id, 0)
    model.turn(2)


def scramble(model: ClusterModel, draw: random.Random) -> None:
    """Whatever may have happened to it, none of which takes a block from where its slot is served."""
    names = list(model.nodes)
    for name in names:
        node = model.nodes[name]
        luck = draw.random()
        if luck < 0.1 and not node.slots:
            node.leaving, node.wait = True, draw.randrange(1, 6)
        elif luck < 0.25:
            node.current = False
        elif luck < 0.35:
            model.kill(name)
        elif luck < 0.4 and not node.slots:
            del model.nodes[name]
        elif luck < 0.45:
            node.unseen = True
        elif luck < 0.55:  # it has forgotten some; others still know it
            for id in draw.sample(sorted(node.known), len(node.known) // 2):
                if id != node.primary and not node.table.get(id):
                    node.delete(id)
        elif luck < 0.6 and not node.slots:  # a newcomer
            model.start(name, draw.choice(["pending", "booting", "up"]))
        elif luck < 0.65 and node.primary:  # a replica of somebody else
            others = [other for other in model.nodes.values() if not other.primary and node.knows(other.id)]
            node.primary = draw.choice(others).id if others else node.primary
        elif luck < 0.7 and node.primary and (primary := model.node(node.primary)) is not None:
            if primary.runs and node.knows(primary.id):
                node.blocks = primary.blocks
                node.promoted()
        elif luck < 0.75:
            model.start(f"{node.shard}-{node.place + 1 + draw.randrange(2)}", "pending") if (
                not any(f"{node.shard}-{node.place + 1 + more}" in model.nodes for more in range(2))
            ) else None
        elif luck < 0.8 and node.slots:
            opened(model, node, draw)
        elif luck < 0.85 and node.slots:  # uneven
            others = [other for other in model.nodes.values() if not other.primary and node.knows(other.id)
                      and other.knows(node.id) and other.runs]  # fmt: skip
            if others and node.runs:
                model.hand_over(node, draw.choice(others), node.slots & draw.getrandbits(SLOTS))
        if draw.random() < 0.3:
            model.turn()
    if draw.random() < 0.3:
        model.start(f"{draw.randrange(7)}-0", "pending") if f"{draw.randrange(7)}-0" not in model.nodes else None


def opened(model: ClusterModel, node: ModelNode, draw: random.Random) -> None:
    """A move of some of its slots was cut off: on both sides or one, with none, half or all of the blocks over."""
    others = [other for other in model.nodes.values() if not other.primary and other is not node and other.runs
              and node.knows(other.id) and other.knows(node.id)]  # fmt: skip
    if not others or not node.runs:
        return
    target, some = draw.choice(others), draw.sample(sorted(slots_in(node.slots)), min(20, node.slots.bit_count()))
    which = draw.randrange(4)
    if which != 1:
        target.importing.update(dict.fromkeys(some, node.id))
    if which != 2:
        node.migrating.update(dict.fromkeys(some, target.id))
    if which == 3:
        part = mask(draw.sample(some, draw.randrange(len(some) + 1)))
        target.blocks |= node.blocks & part
        node.blocks &= ~part
