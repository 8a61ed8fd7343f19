"""In which order blocks should lie: those side by side that are gathered together.

That is the layout of code by its profile (Pettis and Hansen, PLDI 1990) with blocks for procedures: each pair that was
gathered together is an edge, and the heaviest edges are made neighbours first. Pure; time is the number of gathers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

HORIZON = 4096
"""Gathers after which one counts for 1/e."""
MOST_EDGES = 1 << 15
REACH = 16
"""Blocks of a gather are paired with so many that follow: what a gather of many costs is bounded."""
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
            heaviest = sorted(edges.items(), key=_by_weight)[: max(1, self._most * 3 // 4)]
            self._edges = dict(heaviest)
        if self._unit > _LARGEST:
            self._edges = {pair: found / self._unit for pair, found in self._edges.items()}
            self._unit = 1.0

    def forget(self, blocks: Iterable[Hashable]) -> None:
        """Blocks that are gone."""
        gone = set(blocks)
        self._edges = {pair: w for pair, w in self._edges.items() if pair[0] not in gone and pair[1] not in gone}

    def edges(self, above: float = 0.0) -> list[Edge]:
        """Those heavier than `above`, heaviest first; of equal ones, the one that was seen first."""
        least = above * self._unit
        heavy = [item for item in self._edges.items() if item[1] > least]
        return [Edge(*pair, found / self._unit) for pair, found in sorted(heavy, key=_by_weight)]


def _by_weight(item: tuple[tuple[Hashable, Hashable], float]) -> float:
    return -item[1]


def chains(edges: Iterable[Edge], most_blocks: int = 1024) -> list[Chain]:
    """Edges, heaviest first → chains, heaviest first. Each block is in one chain at most, and once.

    most_blocks: of a chain; longer ones are not joined, so that none takes a whole arena to be laid.
    """
    ends: dict[Hashable, list[Edge]] = {}
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
        if len(ends.get(edge.one, ())) > 1 or len(ends.get(edge.other, ())) > 1:
            continue
        one, other = root(edge.one), root(edge.other)
        joined = size.get(one, 1) + size.get(other, 1)
        if one == other or joined > most_blocks:
            continue
        if size.get(one, 1) < size.get(other, 1):
            one, other = other, one
        parent[other], size[one] = one, joined
        ends.setdefault(edge.one, []).append(edge)
        ends.setdefault(edge.other, []).append(edge)
    found, seen = [], set[Hashable]()
    for block, joints in ends.items():
        if len(joints) == 1 and block not in seen:
            found.append(_walked(block, ends))
            seen.add(found[-1].blocks[-1])
    return sorted(found, key=lambda chain: -chain.weight)


def _walked(block: Hashable, ends: dict[Hashable, list[Edge]]) -> Chain:
    """The chain that ends with `block`, from there."""
    blocks, weights, last = [block], [], None
    while (step := next((edge for edge in ends[block] if edge is not last), None)) is not None:
        block, last = step.other if step.one == block else step.one, step
        blocks.append(block)
        weights.append(step.weight)
    return Chain(tuple(blocks), tuple(weights))
