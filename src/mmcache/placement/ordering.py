"""In which order blocks should lie: those side by side that are gathered together.

That is the layout of code by its profile (Pettis and Hansen, PLDI 1990) with blocks for procedures: each pair that was
gathered together is an edge, and the heaviest edges are made neighbours first. Pure; time is the number of gathers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HORIZON = 4096
"""Gathers after which one counts for 1/e."""
MOST_EDGES = 1 << 15
REACH = 16
"""Blocks of a gather are paired with so many that follow: what a gather of many costs is bounded."""
MOST_BLOCKS = 1024
"""Of a chain."""
_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Edge:
    """Both were gathered together."""

    one: Hashable
    other: Hashable
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
    """What was gathered together, older gathers for less. Bounded: the lightest edges are forgotten."""

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
        """One gather of `blocks`. weight: less for one that is only expected, by likeness say."""
        self.gathers += 1
        self._unit *= self._growth
        more = weight * self._unit
        edges = self._edges
        for at, one in enumerate(blocks):
            for other in blocks[at + 1 : at + 1 + REACH]:
                if one != other:
                    pair = (other, one) if (other, one) in edges else (one, other)
                    edges[pair] = edges.get(pair, 0.0) + more
        if len(edges) > self._most:
            pairs, weights, order = self._heaviest(0.0)
            kept = order[: max(1, self._most * 3 // 4)].tolist()
            self._edges = {pairs[n]: weights[n] for n in kept}
        if self._unit > _LARGEST:
            self._edges = {pair: found / self._unit for pair, found in self._edges.items()}
            self._unit = 1.0

    def forget(self, blocks: Iterable[Hashable]) -> None:
        """Blocks that are gone."""
        gone = set(blocks)
        self._edges = {pair: w for pair, w in self._edges.items() if pair[0] not in gone and pair[1] not in gone}

    def edges(self, above: float = 0.0) -> Iterator[Edge]:
        """Those heavier than `above`, as of now, heaviest first; of equal ones, the one that was seen first."""
        unit, (pairs, weights, order) = self._unit, self._heaviest(above * self._unit)
        return (Edge(pairs[n][0], pairs[n][1], weights[n] / unit) for n in order.tolist())

    def _heaviest(self, above: float) -> tuple[list[tuple[Hashable, Hashable]], list[float], npt.NDArray[np.int64]]:
        """All pairs and weights, and the numbers of those that weigh more, heaviest first."""
        found = list(self._edges.values())
        weights = np.array(found, np.float64)
        heavy = np.flatnonzero(weights > above)
        return list(self._edges), found, np.asarray(heavy[np.argsort(-weights[heavy], kind="stable")], np.int64)


def chains(edges: Iterable[Edge], most_blocks: int = MOST_BLOCKS) -> list[Chain]:
    """Edges, heaviest first → chains, heaviest first. Each block is in one chain at most, and once.

    most_blocks: of a chain; longer ones are not joined, so that none takes a whole arena to be laid.
    """
    joining = Joining(most_blocks)
    for edge in edges:
        joining.add(edge)
    return sorted(joining.chains(), key=heaviest_first)


def heaviest_first(chain: Chain) -> float:
    """A key to sort by."""
    return -chain.weight


class Joining:
    """Chains, edge by edge: `chains` for who cannot do it all at once."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most = most_blocks
        self._ends: dict[Hashable, list[Edge]] = {}
        self._parent: dict[Hashable, Hashable] = {}
        self._size: dict[Hashable, int] = {}

    def add(self, edge: Edge) -> None:
        """The next edge, no heavier than those before it."""
        ends, size = self._ends, self._size
        if len(ends.get(edge.one, ())) > 1 or len(ends.get(edge.other, ())) > 1:
            return
        one, other = self._root(edge.one), self._root(edge.other)
        joined = size.get(one, 1) + size.get(other, 1)
        if one == other or joined > self._most:
            return
        if size.get(one, 1) < size.get(other, 1):
            one, other = other, one
        self._parent[other], size[one] = one, joined
        ends.setdefault(edge.one, []).append(edge)
        ends.setdefault(edge.other, []).append(edge)

    def chains(self) -> Iterator[Chain]:
        """In any order."""
        seen = set[Hashable]()
        for block, joints in self._ends.items():
            if len(joints) == 1 and block not in seen:
                chain = _walked(block, self._ends)
                seen.add(chain.blocks[-1])
                yield chain

    def _root(self, block: Hashable) -> Hashable:
        parent, found = self._parent, block
        while (above := parent.setdefault(found, found)) != found:
            found = above
        while parent[block] != found:
            parent[block], block = found, parent[block]
        return found


def _walked(block: Hashable, ends: dict[Hashable, list[Edge]]) -> Chain:
    """The chain that ends with `block`, from there."""
    blocks, weights, last = [block], [], None
    while (step := next((edge for edge in ends[block] if edge is not last), None)) is not None:
        block, last = step.other if step.one == block else step.one, step
        blocks.append(block)
        weights.append(step.weight)
    return Chain(tuple(blocks), tuple(weights))
