"""`Realms`: sessions and graph of each realm (a tenant's namespace), so that nothing learned in one is used in another.

They share one bound, and where it is reached, whoever knows most forgets: however many keys or sessions one tenant goes
through, what is known of the others stays. Pure: time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from mmcache.model.key import Key
from mmcache.prefetch.graph import BehaviourGraph, GraphSettings
from mmcache.prefetch.sessions import Sessions

MOST = 1024
"""Realms; over that the one that was quiet for longest is forgotten."""
AT_ONCE = 1 / 256
"""Of a bound, that is forgotten when it is passed: so the search for who knows most is seldom."""


@dataclass(slots=True, eq=False)
class Realm:
    sessions: Sessions[Key]
    graph: BehaviourGraph[Key]


class Realms:
    """Together they hold at most as many nodes and edges as `settings` says, and `most_sessions`."""

    def __init__(self, settings: GraphSettings, gap: float, most_sessions: int, window: int) -> None:
        """gap, window: see `Sessions`."""
        self.settings, self._most_sessions = settings, most_sessions
        self.make: Callable[[GraphSettings], BehaviourGraph[Key]] = BehaviourGraph
        """Of a realm's graph."""
        self._new_sessions: Callable[[], Sessions[Key]] = lambda: Sessions(gap, most_sessions, window)
        self._held: OrderedDict[Hashable, Realm] = OrderedDict()  # quietest first
        self.nodes = self.edges = self.sessions = 0
        """Of all realms together."""

    def __len__(self) -> int:
        return len(self._held)

    def find(self, realm: Hashable) -> Realm | None:
        """What is known of it."""
        return self._held.get(realm)

    def visit(self, realm: Hashable, session: Hashable, key: Key, at: float) -> bool:
        """Learn from a visit; False: there was nothing to learn, see `Sessions.visit`."""
        known = self._held.get(realm)
        if known is None:
            known = self._held[realm] = Realm(self._new_sessions(), self.make(self.settings))
        self._held.move_to_end(realm)
        self._count(known, -1)
        earlier = known.sessions.visit(session, key, at)
        if earlier is not None:
            known.graph.observe(key, earlier, at)
        self._count(known, 1)
        self._shrink()
        return earlier is not None

    def _count(self, known: Realm, sign: int) -> None:
        self.nodes += sign * len(known.graph)
        self.edges += sign * known.graph.edges
        self.sessions += sign * len(known.sessions)

    def _shrink(self) -> None:
        while len(self._held) > MOST:
            self._count(self._held.popitem(last=False)[1], -1)
        while self.nodes > self.settings.most_nodes:
            self._forget(lambda one: len(one.graph), lambda one: one.graph.shed(), self.settings.most_nodes)
        while self.edges > self.settings.most_edges:
            self._forget(lambda one: one.graph.edges, lambda one: one.graph.shed(), self.settings.most_edges)
        while self.sessions > self._most_sessions:
            self._forget(lambda one: len(one.sessions), lambda one: one.sessions.shed(), self._most_sessions)

    def _forget(self, size: Callable[[Realm], int], shed: Callable[[Realm], object], most: int) -> None:
        largest = max(self._held.values(), key=size)
        self._count(largest, -1)
        for _ in range(min(size(largest), max(1, int(most * AT_ONCE)))):
            shed(largest)
        self._count(largest, 1)
