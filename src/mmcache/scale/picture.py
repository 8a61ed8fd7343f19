"""What follows from one look: whose a slot is, which ids nobody has any more, who stands for a shard.

A node's own word on its slots counts most; of a node that did not answer, the others' word does, the newest epoch
first. An absent id is *gone* when no member can have it: a process that lost its memory comes back under a new id, so
what has a new id at its old address, or has no process any more, will not return. An absent id that is not gone may be
alive: it is waited for, and nothing of it is given away. It has *ended* when the platform has proof of that, though the
member is still there and has its address: it will be another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mmcache.scale.observed import SLOTS, Member, NodeSeen, Observed, Other

_UNKNOWING = frozenset({"handshake", "noaddr"})
_DOUBT = frozenset({"fail", "fail?", "noaddr"})
MISSED_SECONDS = 5.0
"""A replica that heard nothing of its primary for longer, while others did, is no heir of it: what it has was dropped
since, perhaps. Shorter is a link that broke because the primary died: it is noticed in whole seconds, and by looks."""


@dataclass(frozen=True)
class Absent:
    """An id that somebody knows and that no member answers to."""

    id: str
    views: tuple[Other, ...]
    """What is said of it, newest epoch first."""
    gone: bool
    """No member can have it."""
    ended: bool = False
    """It is gone, or the platform has proof that the process at its address has ended: it will not answer again."""

    @property
    def failed(self) -> bool:
        """The others have agreed that it is dead, or have met another process at its address."""
        return any(view.flags & {"fail", "noaddr"} for view in self.views)

    @property
    def doubted(self) -> bool:
        """All who know it doubt that it is alive."""
        return all(view.flags & _DOUBT for view in self.views)

    @property
    def primary(self) -> str:
        """The id that it replicates; "" for none. Who knows it from hearsay does not say."""
        return next((view.primary for view in self.views if view.primary and view.epoch == self.epoch), "")

    @property
    def epoch(self) -> int:
        """The newest that is known of it."""
        return self.views[0].epoch

    @property
    def claims(self) -> frozenset[int]:
        """Slots that it serves, by the newest word."""
        return frozenset().union(*(view.slots for view in self.views if view.epoch == self.epoch))


class Picture:
    """Facts of one `Observed`, each worked out when it is first asked for."""

    def __init__(self, seen: Observed) -> None:
        self.members = tuple(sorted(seen.members, key=lambda member: (member.shard, member.place)))
        self.named: Mapping[str, Member] = {member.name: member for member in self.members}
        self.nodes: Mapping[str, NodeSeen] = {m.name: seen.nodes[m.name] for m in self.members if m.name in seen.nodes}
        """Those that answered, in the order of `members`."""
        self.ids: Mapping[str, str] = {node.id: name for name, node in self.nodes.items()}
        self.silent = tuple(member for member in self.members if member.name not in self.nodes)
        shards: dict[int, list[Member]] = {}
        for member in self.members:
            shards.setdefault(member.shard, []).append(member)
        self.shards: Mapping[int, Sequence[Member]] = shards
        """Members by shard, lowest places first."""

    @cached_property
    def absent(self) -> Mapping[str, Absent]:
        """By id, those in the middle of a handshake left out: such an id is made up until it ends."""
        views: dict[str, list[Other]] = {}
        for node in self.nodes.values():
            for other in node.others.values():
                if other.id not in self.ids and "handshake" not in other.flags:
                    views.setdefault(other.id, []).append(other)
        found = {}
        for id, said in sorted(views.items()):
            said.sort(key=lambda other: -other.epoch)
            gone = self._gone(said, self.silent)
            ended = gone or self._gone(said, [member for member in self.silent if not member.ended])
            found[id] = Absent(id, tuple(said), gone, ended)
        return found

    def _gone(self, said: Iterable[Other], silent: Iterable[Member]) -> bool:
        """None of `silent` can have the id."""
        addressed = {(member.host, member.port) for member in silent if member.host}
        if not addressed or any("noaddr" in other.flags for other in said):
            return True
        return self._same_names and not addressed & {(other.host, other.port) for other in said}

    @cached_property
    def _same_names(self) -> bool:
        """Whether the platform names addresses as the nodes do (it may know host names, and they numbers)."""
        return any(
            (other.host, other.port) == (member.host, member.port)
            for node in self.nodes.values()
            for other in node.others.values()
            if other.id in self.ids
            for member in (self.named[self.ids[other.id]],)
        )

    @cached_property
    def _served(self) -> tuple[dict[str, frozenset[int]], frozenset[int]]:
        claims = [(node.epoch, 2, node.id, node.slots) for node in self.nodes.values() if not node.primary]
        for absent in self.absent.values():  # who is gone without heirs has nothing: whoever claims its slots has more
            epoch = -1 if absent.gone and not self.has_heirs(absent) else absent.epoch
            claims.append((epoch, 1 - absent.gone, absent.id, absent.claims))
        taken: set[int] = set()
        found = {}
        for _, _, id, slots in sorted(claims, key=lambda claim: claim[:3], reverse=True):
            if mine := slots if taken.isdisjoint(slots) else slots - taken:
                found[id] = mine
                taken |= mine
        return found, frozenset(range(SLOTS)) - taken if len(taken) < SLOTS else frozenset()

    def has_heirs(self, absent: Absent, *, failed: bool = True) -> bool:
        """Whether a replica of it is there, or one that may answer again; failed: even one that others hold for dead.

        It has the blocks, and may have taken over before anybody heard of it.
        """
        followed = any(node.primary == absent.id and not self.stale(name) for name, node in self.nodes.items())
        return followed or any(
            other.primary == absent.id and not other.gone and (failed or not other.failed)
            for other in self.absent.values()
        )

    def stale(self, name: str) -> bool:
        """Whether a replica has blocks, and its absent primary served on when it heard no changes any more.

        Nobody's clock is compared with another's: how long the link is down, with how long the primary is silent.
        """
        node = self.nodes[name]
        if not node.primary or node.primary in self.ids or not node.keys:
            return False
        id = node.primary
        silences = [other.unheard_seconds[id] for other in self.nodes.values() if id in other.unheard_seconds]
        return bool(silences) and node.unlinked_seconds - min(silences) > MISSED_SECONDS

    @property
    def slots_of(self) -> Mapping[str, frozenset[int]]:
        """Slots by the id that serves them; where several say so, the newest epoch does."""
        return self._served[0]

    @property
    def unowned(self) -> frozenset[int]:
        """Slots that nobody says anybody serves."""
        return self._served[1]

    def owner(self, slot: int) -> str:
        """The id that serves it; "" for none."""
        return next((id for id, slots in self.slots_of.items() if slot in slots), "")

    def serves(self, name: str) -> frozenset[int]:
        """The slots of a member that answered."""
        return self.slots_of.get(self.nodes[name].id, frozenset())

    @cached_property
    def counts(self) -> Mapping[int, int]:
        """Slots by shard; only shards that serve."""
        found: Counter[int] = Counter()
        for name in self.nodes:
            if served := self.serves(name):
                found[self.named[name].shard] += len(served)
        return dict(sorted(found.items()))

    def answering(self, shard: int) -> list[Member]:
        """Its members that answered, by place."""
        return [member for member in self.shards.get(shard, ()) if member.name in self.nodes]

    @cached_property
    def primaries(self) -> Mapping[int, Member]:
        """Who stands for each shard: who serves slots, or else whom the others follow, or could."""
        found = {}
        for shard in self.shards:
            candidates = [member for member in self.answering(shard) if not self.nodes[member.name].primary]
            if candidates:
                found[shard] = min(candidates, key=self._rank)
        return found

    def _rank(self, member: Member) -> tuple[object, ...]:
        node = self.nodes[member.name]
        followers = sum(self.nodes[peer.name].primary == node.id for peer in self.answering(member.shard))
        return (-len(self.serves(member.name)), -followers, member.leaving, not member.ready, not member.current,
                member.place)  # fmt: skip

    def usable(self, shard: int) -> Member | None:
        """Its primary, where slots may go to it."""
        primary = self.primaries.get(shard)
        return primary if primary is not None and primary.ready and not primary.leaving else None

    def knows(self, one: str, other: str) -> bool:
        """Whether two members that answered know each other."""
        return self._sees(one, other) and self._sees(other, one)

    def _sees(self, one: str, other: str) -> bool:
        known = self.nodes[one].others.get(self.nodes[other].id)
        return known is not None and not known.flags & _UNKNOWING

    def doubted(self, name: str) -> bool:
        """Whether another that answered cannot reach this one, which answered, too: the network has come apart."""
        id = self.nodes[name].id
        return any(id in node.others and node.others[id].flags & _DOUBT for node in self.nodes.values())

    def acquainted(self, one: str, other: str) -> bool:
        """Whether one of two has ever heard of the other."""
        return self.nodes[other].id in self.nodes[one].others or self.nodes[one].id in self.nodes[other].others

    def greeting(self, one: str, other: str) -> bool:
        """Whether a handshake between two is under way."""
        for name, peer in ((one, other), (other, one)):
            member = self.named[peer]
            for known in self.nodes[name].others.values():
                if "handshake" in known.flags and (known.host, known.port) == (member.host, member.port):
                    return True
        return False
