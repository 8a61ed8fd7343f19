"""In which order blocks should lie: those side by side that are gathered one after the other.

That is a layout of code by its profile (Pettis and Hansen, PLDI 1990) with blocks for procedures: each pair that was
gathered one behind the other is an edge, and the heaviest edges are made neighbours first. Pure; time is the number of
gathers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

HORIZON = 4096
"""Gathers after which one counts for 1/e."""
MOST_EDGES = 1 << 17
_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Edge:
    """`after` was gathered just behind `before`."""

    before: Hashable
    after: Hashable
    weight: float
    """How often, of late."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks to be laid side by side, in this order."""

    blocks: tuple[Hashable, ...]
    weights: tuple[float, ...]
    """Of each pair of neighbours in it."""

    @property
    def weight(self) -> float:
        """All of them."""
        return sum(self.weights)


class Together:
    """What was gathered one behind the other, older gathers for less. Bounded: the lightest edges are forgotten."""

    def __init__(self, horizon: float = HORIZON, most_edges: int = MOST_EDGES) -> None:
        """horizon: gathers, see `HORIZON`."""
        self._growth = 1.0 + 1.0 / horizon  # later gathers count for more, instead of earlier ones for less
        self._unit = 1.0
        self._most = max(1, most_edges)
        self._edges: dict[tuple[Hashable, Hashable], float] = {}
        self.gathers = 0

    def __len__(self) -> int:
        return len(self._edges)

    def used(self, blocks: Sequence[Hashable], weight: float = 1.0) -> None:
        """One gather of `blocks`, in this order. weight: less for one that is only expected, by likeness say."""
        self.gathers += 1
        self._unit *= self._growth
        more = weight * self._unit
        edges = self._edges
        for pair in pairwise(blocks):
            if pair[0] != pair[1]:
                edges[pair] = edges.get(pair, 0.0) + more
        if len(edges) > self._most:
            heaviest = sorted(edges.items(), key=_by_weight)[: max(1, self._most * 3 // 4)]
            self._edges = dict(heaviest)
        if self._unit > _LARGEST:
            self._edges = {pair: found / self._unit for pair, found in edges.items()}
            self._unit = 1.0

    def forget(self, blocks: Iterable[Hashable]) -> None:
        """Blocks that are gone."""
        gone = set(blocks)
        self._edges = {pair: w for pair, w in self._edges.items() if pair[0] not in gone and pair[1] not in gone}

    def edges(self) -> list[Edge]:
        """Heaviest first; of equal ones, the one that was seen first."""
        return [Edge(*pair, found / self._unit) for pair, found in sorted(self._edges.items(), key=_by_weight)]


def _by_weight(item: tuple[tuple[Hashable, Hashable], float]) -> float:
    return -item[1]


def chains(edges: Iterable[Edge], most_blocks: int = 1024) -> list[Chain]:
    """Edges, heaviest first → chains, heaviest first. Each block is in one chain at most, and once.

    most_blocks: of a chain; longer ones are not joined, so that none takes a whole arena to be laid.
    """
    following: dict[Hashable, tuple[Hashable, float]] = {}
    led: set[Hashable] = set()
    parent: dict[Hashable, Hashable] = {}
    size: dict[Hashable, int] = {}

    def root(block: Hashable) -> Hashable:
        found = block
        while (above := parent.setdefault(found, found)) != found:
            found = above
        while parent[block] != found:
            parent[block], block = found, parent[block]
        return found

    for edge in edges:
        if edge.before in following or edge.after in led:
            continue
        one, other = root(edge.before), root(edge.after)
        joined = size.get(one, 1) + size.get(other, 1)
        if one == other or joined > most_blocks:
            continue
        if size.get(one, 1) < size.get(other, 1):
            one, other = other, one
        parent[other], size[one] = one, joined
        following[edge.before] = edge.after, edge.weight
        led.add(edge.after)
    found = []
    for block in following:
        if block in led:
            continue
        blocks, weights = [block], []
        while (step := following.get(blocks[-1])) is not None:
            blocks.append(step[0])
            weights.append(step[1])
        found.append(Chain(tuple(blocks), tuple(weights)))
    return sorted(found, key=lambda chain: -chain.weight)
