"""Looks at a cluster, made by hand: a cluster that is well, and then what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmcache.scale.observed import SLOTS, Member, NodeSeen, Observed, Other
from mmcache.scale.plan import plan
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Plan

MEMORY = 100 << 20


def id_of(name: str) -> str:
    """The id of the member's first process."""
    return f"{name:_>40}"


class Scene:
    """Members and what their nodes say. Slots are even, place 0 is primary, everyone knows everyone."""

    def __init__(self, shards: int = 3, replicas: int = 1, *, slots: bool = True) -> None:
        self.members: dict[str, Member] = {}
        self.nodes: dict[str, NodeSeen] = {}
        self.dead: dict[str, Other] = {}
        """Ids that no member has, as all see them."""
        self.views: dict[tuple[str, str], dict[str, Any] | None] = {}
        """What one sees otherwise than the others: by viewer's name and the id seen; None = it does not know it."""
        for shard in range(shards):
            for place in range(1 + replicas):
                self.add(shard, place)
            if slots:
                mine = range(SLOTS * shard // shards, SLOTS * (shard + 1) // shards)
                self.node(f"{shard}-0", slots=frozenset(mine), epoch=shard + 1)
            for place in range(1, 1 + replicas):
                self.node(f"{shard}-{place}", primary=id_of(f"{shard}-0"))

    def add(self, shard: int, place: int, id: str | None = None, **fields: Any) -> str:
        """A member that answers: a primary without slots."""
        name = f"{shard}-{place}"
        self.members[name] = Member(shard, place, f"10.0.{shard}.{place}", 6379, ready=True, machine=f"m{place}")
        self.nodes[name] = NodeSeen(id or id_of(name), cluster_ok=True, max_bytes=MEMORY, keys=1)
        if fields:
            self.member(name, **fields)
        return name

    def member(self, name: str, **fields: Any) -> None:
        """The platform says something else of it."""
        self.members[name] = replace(self.members[name], **fields)

    def node(self, name: str, **fields: Any) -> None:
        """It says something else of itself."""
        self.nodes[name] = replace(self.nodes[name], **fields)

    def silence(self, name: str, *flags: str, **fields: Any) -> None:
        """It does not answer; the others say these flags of it. The member is as it was, but for `fields`."""
        node = self.nodes.pop(name)
        self.dead[node.id] = self._line(self.members[name], node, *flags)
        self.member(name, **{"ready": False, **fields})

    def remove(self, name: str, *flags: str) -> None:
        """It is gone for good; the others remember it."""
        node, member = self.nodes.pop(name), self.members.pop(name)
        self.dead[node.id] = self._line(member, node, *flags)

    def anew(self, name: str, *flags: str) -> None:
        """Its process is another one, which knows nobody; the old id is remembered with these flags."""
        node, member = self.nodes[name], self.members[name]
        self.dead[node.id] = self._line(member, node, *flags)
        self.add(member.shard, member.place, f"{name:=>40}")
        self.strange(name)

    def strange(self, name: str) -> None:
        """It knows nobody, and nobody knows it."""
        id = self.nodes[name].id
        for other, node in self.nodes.items():
            if other != name:
                self.views[other, id] = None
                self.views[name, node.id] = None
        for id in self.dead:
            self.views[name, id] = None

    def _line(self, member: Member, node: NodeSeen, *flags: str) -> Other:
        return Other(
            node.id, member.host, member.port, frozenset(flags), node.primary, not flags, node.epoch, node.slots
        )

    def seen(self) -> Observed:
        """The look."""
        lines = {node.id: self._line(self.members[name], node) for name, node in self.nodes.items()} | self.dead
        nodes = {}
        for name, node in self.nodes.items():
            others = {}
            for id, line in lines.items():
                changed = self.views.get((name, id), {})
                if changed is not None:
                    others[id] = replace(line, **changed)
            nodes[name] = replace(node, others=others)
        return Observed(tuple(self.members.values()), nodes)

    def plan(self, wanted: int = 3, **spec: Any) -> Plan:
        """What is decided."""
        return plan(ClusterSpec(**{"max_shards": 9, "memory_bytes": MEMORY, **spec}), wanted, self.seen())
