"""PageRank by power iteration (Page, Brin, Motwani, Winograd: The PageRank Citation Ranking, 1999)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

N = TypeVar("N", bound=Hashable)
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

DAMPING = 0.85
ITERATIONS = 20
WORK = 4096
"""Nodes and edges that are read in one step of a refresh."""
LEAST_CHANGES = 64
UNKNOWN = 1.0 - DAMPING
"""The rank of a node to which nothing leads."""


def uniform(count: int) -> Floats:
    """Ranks before any iteration, float64 [count], all 1."""
    return np.ones(count)


def iterate(
    ranks: Floats,
    sources: Places,
    targets: Places,
    shares: Floats,
    damping: float = DAMPING,
) -> Floats:
    """One step from `ranks`, float64 [n], whose mean is 1 and stays so.

    sources, targets: intp [edges] in 0 … n-1; shares: float64 [edges], of what leaves its source (see `normalised`).
    What is held by nodes without edges goes to all alike.
    """
    count = len(ranks)
    if not count:
        return ranks
    moved: Floats = damping * np.bincount(targets, weights=ranks[sources] * shares, minlength=count).astype(np.float64)
    return moved + (1.0 - float(moved.sum()) / count)  # what jumps, and what dangling nodes hold


def normalised(sources: Places, weights: Floats, count: int) -> Floats:
    """float64 [edges]: weights as shares of what leaves their source; 0 where nothing does."""
    leaving = np.bincount(sources, weights=weights, minlength=count)[sources]
    shares: Floats = np.divide(weights, leaving, out=np.zeros(len(weights)), where=leaving > 0)
    return shares


def pagerank(
    sources: Places,
    targets: Places,
    weights: Floats,
    count: int,
    *,
    damping: float = DAMPING,
    iterations: int = 50,
    tolerance: float = 1e-6,
) -> Floats:
    """Ranks with mean 1, float64 [count], after `iterations` or as soon as the mean change is below `tolerance`."""
    ranks, shares = uniform(count), normalised(sources, weights, count)
    for _ in range(iterations if count else 0):
        before, ranks = ranks, iterate(ranks, sources, targets, shares, damping)
        if float(np.abs(ranks - before).mean()) < tolerance:
            break
    return ranks


class Ranking(Generic[N]):
    """Ranks of a graph that changes: refreshed now and then, a bounded piece of work a step, and stale meanwhile."""

    def __init__(self) -> None:
        self._ranks: dict[N, float] = {}
        self._changes = 0
        self._refreshing: Iterator[None] | None = None

    def __getitem__(self, node: N) -> float:
        return self._ranks.get(node, UNKNOWN)

    def changed(self) -> None:
        """An edge got heavier, or went."""
        self._changes += 1

    def step(self, nodes: Iterable[N], edges: int, out: Callable[[N], Iterable[tuple[N, float]]]) -> None:
        """Do a piece of a refresh, where one is under way or due: after changes to a quarter of the edges.

        nodes: all there are; edges: how many; out: a node's (target, weight) now, nothing for one that has gone.
        """
        if self._refreshing is None:
            if self._changes < max(LEAST_CHANGES, edges // 4):
                return
            self._changes = 0
            self._refreshing = self._refresh(list(nodes), out)
        if next(self._refreshing, self) is self:
            self._refreshing = None

    def _refresh(self, nodes: list[N], out: Callable[[N], Iterable[tuple[N, float]]]) -> Iterator[None]:
        places = {node: place for place, node in enumerate(nodes)}
        sources: list[int] = []
        targets: list[int] = []
        weights: list[float] = []
        work = 0
        for place, node in enumerate(nodes):
            for target, weight in out(node):
                work += 1
                if (at := places.get(target)) is not None:
                    sources.append(place)
                    targets.append(at)
                    weights.append(weight)
            work += 1
            if work >= WORK:
                work = 0
                yield
        starts, ends, count = np.array(sources, np.intp), np.array(targets, np.intp), len(nodes)
        shares = normalised(starts, np.array(weights, np.float64), count)
        ranks = np.array([self._ranks.get(node, 1.0) for node in nodes])
        if count:
            ranks *= count / float(ranks.sum())
        for _ in range(ITERATIONS):
            yield
            ranks = iterate(ranks, starts, ends, shares)
        self._ranks = dict(zip(nodes, ranks.tolist(), strict=True))
