"""The load of a cluster from its nodes' counters: differences, never the counters themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mmcache.scale.observed import SLOTS, NodeSeen
from mmcache.scale.window import Window

FORGOTTEN_SECONDS = 900.0
"""A node that did not answer for so long begins anew when it does."""


@dataclass(frozen=True)
class Rate:
    """Of all nodes that were read before."""

    requests: float
    """A second: keys that were looked up for clients (see `NodeSeen.requests`)."""
    seconds: float
    """Since the last reading."""


@dataclass(frozen=True)
class _Reading:
    at: float
    requests: int
    hits: int
    misses: int
    keys: int


class Readings:
    """`take` at every look. A node that is new, or counts from zero again, begins with its first reading."""

    def __init__(self) -> None:
        self._last: dict[str, _Reading] = {}
        self._at: float | None = None
        self._hits, self._misses = Window(), Window()

    def take(
        self, nodes: Mapping[str, NodeSeen], at: float, window_seconds: float, moved: Collection[tuple[str, str]] = ()
    ) -> Rate | None:
        """The rate since the last call; None where nothing can be said: at first, after a step back of the clock,
        and while slots have no primary that answers, since what was asked of it is not known.

        moved: (from, to), the ids of nodes between which MIGRATE moved keys since the last call. It counts as a hit at
        the source for each key; on Redis 6 as three of them, and as a miss at the target. Valkey's own CLUSTER
        MIGRATESLOTS and what a replica is told count as nothing.
        """
        before, was = self._last, self._at
        if was is not None and at <= was:
            before, was = {}, None
            self._hits, self._misses = Window(), Window()
        requests = hits = misses = 0.0
        now: dict[str, _Reading] = {
            id: last for id, last in before.items() if at - last.at < FORGOTTEN_SECONDS and was is not None
        }
        carried = _carried(nodes, now, moved)
        for node in nodes.values():
            reading = _Reading(at, node.requests, node.hits, node.misses, node.keys)
            last = now.get(node.id)
            now[node.id] = reading
            if last is None or _again(last, reading):
                continue
            seconds, (found, missed) = at - last.at, carried.get(node.id, (0, 0))
            requests += max(0, node.requests - last.requests - found - missed) / seconds
            hits += max(0, node.hits - last.hits - found) / seconds
            misses += max(0, node.misses - last.misses - missed) / seconds
        self._last, self._at = now, at
        if was is None or not any(id in before for id in (node.id for node in nodes.values())):
            return None
        seconds = at - was
        self._hits.add(at, seconds, hits * seconds, window_seconds)
        self._misses.add(at, seconds, misses * seconds, window_seconds)
        return Rate(requests, seconds) if whole(nodes) else None

    @property
    def hit_ratio(self) -> float | None:
        """Of the reads in the window; None without any."""
        reads = self._hits.amount + self._misses.amount
        return self._hits.amount / reads if reads > 0 else None


def whole(nodes: Mapping[str, NodeSeen]) -> bool:
    """Whether every slot is served by a primary that answers."""
    served: set[int] = set()
    for node in nodes.values():
        if not node.primary:
            served |= node.slots
    return len(served) == SLOTS


def _carried(
    nodes: Mapping[str, NodeSeen], last: Mapping[str, _Reading], moved: Collection[tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    """Hits and misses of MIGRATE, by id."""
    found: dict[str, tuple[int, int]] = {}
    for node in nodes.values():
        for target in (to for source, to in moved if source == node.id and node.id in last):
            keys = max(0, last[node.id].keys - node.keys)
            older = node.version.startswith("redis 6.")
            hits, misses = found.get(node.id, (0, 0))
            found[node.id] = hits + (3 if older else 1) * keys, misses
            hits, misses = found.get(target, (0, 0))
            found[target] = hits, misses + (keys if older else 0)
    return found


def _again(last: _Reading, now: _Reading) -> bool:
    """Whether its counters were set back."""
    return now.requests < last.requests or now.hits < last.hits or now.misses < last.misses
