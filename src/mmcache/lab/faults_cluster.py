"""Scenes of a cluster: nodes that die or hang, a shard that is lost, slots that move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from mmcache.lab.faults_trial import Scene, nothing, settings_for
from mmcache.lab.servers import Cluster, Node, SlotMove, cluster, replicated, slot_of

MOVED_SLOTS = 6
"""That are on their way at any time."""


@contextmanager
def node_killed(folder: Path, rng: Random) -> Iterator[Scene]:
    """A primary dies while it is written to; its replica takes over."""
    with cluster(folder) as made:
        victim = rng.choice(made.primaries)
        yield Scene(settings_for(made.url), lambda: made.kill(victim), nothing, lasts=5.0)


@contextmanager
def node_silent(folder: Path, rng: Random) -> Iterator[Scene]:
    """A primary stops dead but keeps its connections, for less time than the cluster takes to notice."""
    with cluster(folder, node_timeout_ms=15_000) as made:
        victim = rng.choice(made.primaries)
        yield Scene(settings_for(made.url), lambda: made.pause(victim), lambda: made.resume(victim))


@contextmanager
def shard_lost(folder: Path, rng: Random) -> Iterator[Scene]:
    """A primary dies together with its replica; nobody can take over until they are started again, empty."""
    with cluster(folder) as made:
        primary = rng.choice(made.primaries)
        lost = [primary, *made.replicas_of(primary)]

        def strike() -> None:
            for node in reversed(lost):
                made.kill(node)

        def mend() -> None:
            for node in lost:
                made.restart(node)

        yield Scene(settings_for(made.url), strike, mend, lasts=4.0)


@contextmanager
def resharding(folder: Path, rng: Random) -> Iterator[Scene]:
    """A node joins; slots move to it with their keys, and stop half-way, under load."""
    with cluster(folder, 3, 0) as made:
        moving = Moving(made, made.add_node(), rng)
        yield Scene(settings_for(made.url), nothing, moving.finish, moving.step, lasts=4.0)


class Moving:
    """Slots that hold keys, on their way."""

    def __init__(self, made: Cluster, target: Node, rng: Random) -> None:
        self._made, self._target, self._rng = made, target, rng
        self._under_way: list[SlotMove] = []
        self._done: set[int] = set()

    def step(self) -> None:
        """Half of the keys of some slots go over; those that were half-way before go whole."""
        self.finish()
        slots = [slot for node in self._made.primaries if node is not self._target for slot in used_slots(node)]
        fresh = sorted(set(slots) - self._done)
        for slot in self._rng.sample(fresh, min(MOVED_SLOTS, len(fresh))):
            move = self._made.moving(slot, self._target)
            move.begin()
            keys = move.keys()
            move.move(*keys[: (len(keys) + 1) // 2])
            self._under_way.append(move)
            self._done.add(slot)

    def finish(self) -> None:
        """All that is on its way arrives."""
        while self._under_way:
            self._under_way.pop().finish()


def used_slots(node: Node) -> list[int]:
    """Slots of a node that hold a key, by looking at some of its keys."""
    names = node.server.ask("SCAN", 0, "MATCH", "mmcache:*", "COUNT", 1000)[1]
    return [slot_of(name) for name in names]


@contextmanager
def sentinel_failover(folder: Path, rng: Random) -> Iterator[Scene]:
    """The primary dies; sentinels make its replica the primary."""
    with replicated(folder) as made:
        former = made.primary
        yield Scene(settings_for(made.url), former.kill, nothing, lasts=5.0)
