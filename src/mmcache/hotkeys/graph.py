"""`HotGraph`: which key is used after which, and how often lately. Pure: ticks are arguments.

A weight fades by `DECAY` a tick, w ← 0.995 · w + δ, and nobody walks over all of them to do it: what is kept is
w · DECAY^-tick, which an update raises by δ · DECAY^-tick (forward decay; Cormode et al., "Forward Decay", ICDE 2009).
So an update is O(1), and the order of the weights does not change with time. When there is no room, an eighth goes at
once: O(edges) work each eighth of that many updates, so O(1) an update. Of one owner it is the weakest; of several,
what those have who hold most (max-min fairness): who brings many pushes out none of one with less than his share.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DECAY = 0.995
"""Of a weight, a tick: a half is left after 138."""
MOST_NODES, MOST_EDGES = 65_536, 131_072
_FREED = 8
"""The weakest of so many goes when there is no room."""
_RESCALED_AT = 1e100
"""Growth after which all that is kept is scaled down: each 45 936 ticks."""
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1


class Arrays(NamedTuple):
    """All edges at one tick."""

    source: Integers
    """[E] nodes' places."""
    target: Integers
    weight: Floats
    """[E], decayed."""


class HotGraph:
    """Directed, weighted, bounded: never more than `most_nodes` keys and `most_edges` edges.

    Nodes have places, 0 … `size` - 1, which are used again after a key has gone. Not for several threads at once.
    """

    def __init__(self, most_nodes: int = MOST_NODES, most_edges: int = MOST_EDGES, decay: float = DECAY) -> None:
        """Raises `SettingsError`."""
        if not (2 <= most_nodes < 1 << _SHIFT and most_edges >= 1 and 0.0 < decay <= 1.0):
            raise SettingsError(
                f"a hot-key graph has 2 nodes and 1 edge at least, and a decay over 0, at most 1; not {most_nodes}, "
                f"{most_edges}, {decay}"
            )
        self.most_nodes, self.most_edges, self.decay = most_nodes, most_edges, decay
        self._growth, self._tick = 1.0, 0.0
        self._origin = 0.0
        self._places: dict[Key, int] = {}
        self._keys: list[Key | None] = []
        self._heat = array("d")
        self._community, self._owner = array("q"), array("q")
        self._free_nodes: list[int] = []
        self._edges: dict[int, int] = {}
        self._source, self._target, self._weight = array("q"), array("q"), array("d")
        self._free_edges: list[int] = []
        self.gone_nodes = self.gone_edges = 0
        """Let go for want of room, or because nothing was left of them."""

    def __len__(self) -> int:
        return len(self._places)

    @property
    def edges(self) -> int:
        """How many there are."""
        return len(self._edges)

    @property
    def size(self) -> int:
        """Places of nodes, used or not."""
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    # Updates, O(1) ------------------------------------------------------------------------------------------------

    def advance(self, tick: float) -> float:
        """It is `tick` now: what δ = 1 counts. Time that runs backwards stands still."""
        if tick > self._tick:
            self._tick = tick
            try:
                self._growth = self.decay ** (self._origin - tick)
            except OverflowError:
                self._growth = math.inf
            if self._growth > _RESCALED_AT:
                self._rescale()
        return self._growth

    def use(self, key: Key, tick: float, amount: float = 1.0, owner: int = 0) -> None:
        """`key` is used: its heat rises by `amount`. owner: whose a key is that is new, a number of 64 bits."""
        place = self._place(key, tick, owner)
        self._heat[place] += amount * self._growth

    def at_least(self, key: Key, tick: float, heat: float, owner: int = 0) -> None:
        """`key` was used so much, as somebody else counted."""
        place = self._place(key, tick, owner)
        self._heat[place] = max(self._heat[place], heat * self._growth)

    def follow(self, source: Key, target: Key, tick: float, amount: float = 1.0, owner: int = 0) -> None:
        """`target` is used after `source`: their edge's weight rises by `amount` (δ). Nothing leads to itself.

        A key that is new has no heat yet. owner: of both.
        """
        if source == target:
            return
        one, other = self._place(source, tick, owner), self._place(target, tick, owner)
        if self._keys[one] is not source and self._places.get(source) != one:
            return  # the room that `target` needed was its own
        name = one << _SHIFT | other
        edge = self._edges.get(name)
        if edge is None:
            edge = self._new_edge(name)
        self._weight[edge] += amount * self._growth

    def _place(self, key: Key, tick: float, owner: int) -> int:
        if tick > self._tick:
            self.advance(tick)
        place = self._places.get(key)
        if place is not None:
            return place
        if len(self._places) >= self.most_nodes:
            self._free_some_nodes()
        if self._free_nodes:
            place = self._free_nodes.pop()
            self._keys[place], self._heat[place], self._owner[place] = key, 0.0, owner
        else:
            place = len(self._keys)
            self._keys.append(key)
            self._heat.append(0.0)
            self._community.append(0)
            self._owner.append(owner)
        self._places[key] = place
        return place

    def _new_edge(self, name: int) -> int:
        if len(self._edges) >= self.most_edges:
            self._free_some_edges()
        if self._free_edges:
            edge = self._free_edges.pop()
            self._source[edge], self._target[edge], self._weight[edge] = name >> _SHIFT, name & _LOW, 0.0
        else:
            edge = len(self._weight)
            self._source.append(name >> _SHIFT)
            self._target.append(name & _LOW)
            self._weight.append(0.0)
        self._edges[name] = edge
        return edge

    # Letting go, amortised O(1) -----------------------------------------------------------------------------------

    def _free_some_edges(self) -> None:
        live = self._live_edges()
        weights = np.frombuffer(self._weight, np.float64)[live]
        owners = np.frombuffer(self._owner, np.int64)[np.frombuffer(self._source, np.int64)[live]]
        self._drop_edges(live[_going(weights, owners, max(1, len(live) // _FREED))].tolist())

    def _free_some_nodes(self) -> None:
        live = np.fromiter(self._places.values(), np.int64, len(self._places))
        strength = np.frombuffer(self._heat, np.float64) + self._strengths()
        owners = np.frombuffer(self._owner, np.int64)[live]
        self._drop_nodes(live[_going(strength[live], owners, max(1, len(live) // _FREED))])

    def _strengths(self) -> Floats:
        """As kept, [size]: of the edges at each node."""
        live = self._live_edges()
        weights = np.frombuffer(self._weight, np.float64)[live]
        found: Floats = np.zeros(self.size)
        for ends in (self._source, self._target):
            found += summed(np.frombuffer(ends, np.int64)[live], weights, self.size)
        return found

    def _live_edges(self) -> Integers:
        return np.fromiter(self._edges.values(), np.int64, len(self._edges))

    def _drop_nodes(self, places: Integers) -> None:
        going = np.zeros(self.size, bool)
        going[places] = True
        live = self._live_edges()
        source, target = (np.frombuffer(ends, np.int64)[live] for ends in (self._source, self._target))
        self._drop_edges(live[going[source] | going[target]].tolist())
        for place in places.tolist():
            key = self._keys[place]
            assert key is not None
            del self._places[key]
            self._keys[place] = None
        np.frombuffer(self._community, np.int64)[places] = 0
        self._free_nodes += places.tolist()
        self.gone_nodes += len(places)

    def _drop_edges(self, edges: Iterable[int]) -> None:
        count = len(self._edges)
        for edge in edges:
            del self._edges[self._source[edge] << _SHIFT | self._target[edge]]
            self._free_edges.append(edge)
        self.gone_edges += count - len(self._edges)

    def prune(self, tick: float, least: float) -> None:
        """Let go edges of less than `least`, and keys of less heat that have no edge: what faded takes no room."""
        floor = least * self.advance(tick)
        live = self._live_edges()
        weights = np.frombuffer(self._weight, np.float64)[live]
        self._drop_edges(live[weights < floor].tolist())
        places = np.fromiter(self._places.values(), np.int64, len(self._places))
        heat = np.frombuffer(self._heat, np.float64)[places]
        self._drop_nodes(places[(heat < floor) & (self._strengths()[places] == 0.0)])

    def forget(self, key: Key) -> None:
        """Let a key and its edges go, O(edges)."""
        place = self._places.get(key)
        if place is not None:
            self._drop_nodes(np.array([place], np.int64))

    def _rescale(self) -> None:
        """So that nothing overflows: what was kept for the origin before is kept for one at this tick."""
        for kept in (self._heat, self._weight):
            values = np.frombuffer(kept, np.float64)
            values /= self._growth
        self._origin, self._growth = self._tick, 1.0

    # Looks, O(nodes + edges) --------------------------------------------------------------------------------------

    def heat(self, key: Key, tick: float) -> float:
        """Decayed uses of `key`; 0 for one that is not here."""
        place = self._places.get(key)
        self.advance(tick)
        return 0.0 if place is None else self._heat[place] / self._growth

    def weight(self, source: Key, target: Key, tick: float) -> float:
        """Of the edge; 0 where there is none."""
        one, other = self._places.get(source), self._places.get(target)
        self.advance(tick)
        edge = None if one is None or other is None else self._edges.get(one << _SHIFT | other)
        return 0.0 if edge is None else self._weight[edge] / self._growth

    def arrays(self, tick: float) -> Arrays:
        """All edges, copied, in the order in which they came to be."""
        growth, live = self.advance(tick), self._live_edges()
        source, target = (np.frombuffer(ends, np.int64)[live] for ends in (self._source, self._target))
        return Arrays(source, target, np.frombuffer(self._weight, np.float64)[live] / growth)

    def hottest(self, count: int, tick: float) -> list[tuple[Key, int, float]]:
        """At most `count` keys, their places and heats, hottest first; equal ones by their bytes."""
        growth = self.advance(tick)
        places = np.fromiter(self._places.values(), np.int64, len(self._places))
        heats = np.frombuffer(self._heat, np.float64)[places] if len(places) else np.empty(0)
        if len(places) > count:
            chosen = np.argpartition(-heats, count - 1)[:count] if count > 0 else np.empty(0, np.int64)
            places, heats = places[chosen], heats[chosen]
        found = [(self.key(place), place, heat / growth) for place, heat in zip(places.tolist(), heats, strict=True)]
        return sorted(((key, place, float(heat)) for key, place, heat in found), key=lambda one: (-one[2], one[0]))

    def key(self, place: int) -> Key:
        """At that place. Raises `IndexError` where none is."""
        key = self._keys[place]
        if key is None:
            raise IndexError(f"no key at place {place}")
        return key

    @property
    def communities(self) -> Integers:
        """[size] A node's community by its id, 0 = none; a copy."""
        return np.array(self._community, np.int64)

    def assign(self, communities: Integers) -> None:
        """Say which community each place is in, [size]; a key that comes later is in none."""
        np.frombuffer(self._community, np.int64)[: len(communities)] = communities


def _going(weights: Floats, owners: Integers, count: int) -> Integers:
    """Which `count` go, [count]: at the end of each owner's order by weight, of the longest orders first."""
    if count >= len(weights):
        return np.arange(len(weights))
    if (owners == owners[0]).all():
        return _least(weights, count)
    order = np.lexsort((-weights, owners))
    sorted_owners = owners[order]
    first = np.concatenate([[True], sorted_owners[1:] != sorted_owners[:-1]])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    last = np.partition(rank, len(rank) - count)[len(rank) - count]
    surely, some = np.flatnonzero(rank > last), np.flatnonzero(rank == last)
    return np.concatenate([surely, some[_least(weights[some], count - len(surely))]])


def _least(weights: Floats, count: int) -> Integers:
    """Places of the `count` smallest."""
    found: Integers = np.argpartition(weights, count - 1)[:count]
    return found


def summed(places: Integers, amounts: Floats, size: int) -> Floats:
    """[size] The sum of the amounts at each place."""
    return np.asarray(np.bincount(places, amounts, size), np.float64)
