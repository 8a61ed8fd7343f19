"""`BehaviourGraph`: what is looked for after what, and what will be next (D4). Pure: time is an argument.

An edge's weight is how often its target was looked for within a few lookups after its source, where what is
`half_life` old counts half. Weights are kept scaled by 2^(time / half_life) (forward decay: Cormode, Shkapenyuk,
Srivastava, Xu, ICDE 2009), so that time passing changes none of them. Of each node the heaviest edges are kept by
Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import sqrt
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from mmcache.model.errors import SettingsError
from mmcache.prefetch.pagerank import Ranking

N = TypeVar("N", bound=Hashable)
Order = Literal["rank", "probability"]


@dataclass(frozen=True)
class GraphSettings:
    half_life: float = 6 * 3600.0
    """Seconds."""
    most_nodes: int = 20_000
    most_edges: int = 200_000
    most_out: int = 32
    """Edges of one node."""
    doubt: float = 2.0
    """Observations that a node must have for its probabilities to count half."""
    floor: float = 0.1
    """Paths that are less probable are not followed."""
    fade: float = 0.8
    """By what factor the lookup before counts less for what comes next than the one after it."""
    order: Order = "rank"
    """Which candidates come first: those of the highest PageRank, or the most probable ones."""

    def __post_init__(self) -> None:
        """Raises `SettingsError`."""
        if not (self.half_life > 0 and self.doubt >= 0 and 0 < self.floor <= 1 and 0 < self.fade <= 1):
            raise SettingsError("a graph needs a half-life above 0 s, a doubt of 0 or more, and a floor in (0, 1]")
        if min(self.most_nodes, self.most_edges, self.most_out) < 1:
            raise SettingsError("a graph needs room for at least one node and one edge")


class Candidate(NamedTuple, Generic[N]):
    """What may be looked for next."""

    node: N
    hop: int
    """Edges from what was looked for: 1 … `hops`."""
    probability: float
    """That it is looked for, along the most probable path, 0…1."""
    rank: float
    """Its PageRank; 1 is the mean."""
    lag: float = 1.0
    """Lookups until it is that one's turn, in the mean; 1 = it is the next."""


@dataclass(slots=True)
class _Node(Generic[N]):
    weight: float = 0.0
    """Of its lookups, scaled."""
    visits: int = 0
    out: dict[N, _Edge] = field(default_factory=dict)


@dataclass(slots=True)
class _Edge:
    weight: float
    """Scaled."""
    error: float
    """Of which it may not be its own."""
    lately: float = 0.0
    """Of the source's last visits, the share that it followed, each older one counting less by `NEWS`; not yet divided
    by what all weigh together."""
    at: int = 0
    """The source's visits when that was so."""
    lag: float = 1.0
    """How many lookups after the source it came, in the mean of the last ones."""


NEWS = 1 / 8
"""Weight of the last visit in `lately`."""
HALF_LIVES = 512.0
"""After as many, all weights are scaled down, or they would overflow."""
NOTHING = 1e-9
"""Observations: what weighs less then is dropped."""
PROBED = 8
"""Of the nodes that were quiet for longest, compared when one must go: the lightest goes."""


class BehaviourGraph(Generic[N]):
    """A weighted directed graph of bounded size. For one thread at a time."""

    def __init__(self, settings: GraphSettings = GraphSettings()) -> None:
        self.settings = settings
        self._nodes: OrderedDict[N, _Node[N]] = OrderedDict()  # quietest first
        self._edges = 0
        self._began: float | None = None
        self._now = 0.0
        self._ranking: Ranking[N] = Ranking()

    def __len__(self) -> int:
        """Nodes that were looked for, and are remembered."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[N]:
        """The nodes, quietest first."""
        return iter(self._nodes)

    @property
    def edges(self) -> int:
        """How many there are."""
        return self._edges

    def out(self, node: N, now: float) -> dict[N, float]:
        """Share of the lookups of `node` that each target followed, doubt deducted. Not 1 together: several follow."""
        found = self._nodes.get(node)
        if found is None:
            return {}
        whole = found.weight + self.settings.doubt * self._one(now)
        return {target: min(1.0, (edge.weight - edge.error) / whole) for target, edge in found.out.items()}

    def observe(self, node: N, earlier: Sequence[N], now: float) -> None:
        """`node` was looked for after `earlier` (newest first) in one session: what `Sessions.visit` returns.

        O(1), amortised over the rescaling of all weights once in 512 half-lives.
        """
        one = self._one(now)
        found = self._nodes.setdefault(node, _Node())
        found.weight += one
        found.visits += 1
        self._nodes.move_to_end(node)
        for place, source in enumerate(earlier):
            self.learn(source, node, now, place + 1)
        self._shrink(node)

    def learn(self, source: N, target: N, now: float, lag: int = 1) -> None:
        """`target` was looked for `lag` lookups after `source`; nothing where that is not known, or is the same."""
        found = self._nodes.get(source)
        if found is None or source == target:
            return
        out = found.out
        edge = out.get(target)
        self._ranking.changed()
        if edge is None:
            error = 0.0
            if len(out) >= self.settings.most_out:
                error = out.pop(min(out, key=lambda other: out[other].weight)).weight
                self._edges -= 1
            edge = out[target] = _Edge(error, error, lag=lag)
            self._edges += 1
        edge.weight += self._one(now)
        edge.lately = min(1.0, edge.lately * (1 - NEWS) ** (found.visits - edge.at) + NEWS)
        edge.at = found.visits
        edge.lag += NEWS * (lag - edge.lag)

    def forget(self, node: N) -> None:
        """Drop `node` and what leads from it. What leads to it is never followed further, and fades."""
        found = self._nodes.pop(node, None)
        if found is not None:
            self._edges -= len(found.out)
            if found.out:  # or churn of keys that lead nowhere would have all ranked anew, over and over
                self._ranking.changed()

    def candidates(
        self, recent: Sequence[N], now: float, *, hops: int = 3, width: int = 8, most: int = 64
    ) -> list[Candidate[N]]:
        """What may be looked for after `recent` (newest first), at most `most`, best first; never one of `recent`.

        Depth-first over paths of at most `hops` edges that are at least `floor` probable, successors of the highest
        PageRank first, at most `width` of a node; a path that comes to a node by a less probable way ends there.
        """
        self._ranking.step(self._nodes, self._edges, self._weights)
        known = set(recent)
        best: dict[N, Candidate[N]] = {}
        left = 8 * most  # edges followed
        for place, start in enumerate(recent):
            paths = [(start, 0, self.settings.fade**place, float(-place))]
            while paths and left > 0:
                node, hop, probability, gone = paths.pop()
                follow = self._followers(node, probability, now, width)
                for target, reached, rank, lag in reversed(follow):
                    before = best.get(target)
                    if target in known or (before is not None and before.probability >= reached):
                        continue
                    left -= 1
                    best[target] = Candidate(target, hop + 1, reached, rank, max(1.0, gone + lag))
                    if hop + 1 < hops:
                        paths.append((target, hop + 1, reached, gone + lag))
        found = sorted(best.values(), key=_BY[self.settings.order])
        return found[:most]

    def _followers(self, node: N, probability: float, now: float, width: int) -> list[tuple[N, float, float, float]]:
        """(target, path's probability, rank, lag), highest rank first."""
        source = self._nodes.get(node)
        if source is None:
            return []
        ranking, whole = self._ranking, source.weight + self.settings.doubt * self._one(now)
        floor = self.settings.floor / probability
        found = []
        for target, edge in source.out.items():
            share = min(1.0, (edge.weight - edge.error) / whole)
            if share >= floor and (share := min(share, _lately(edge, source.visits))) >= floor:
                found.append((target, probability * share, ranking[target], edge.lag))
        found.sort(key=lambda one: (-one[2], -one[1]))
        return found[:width]

    def _weights(self, node: N) -> list[tuple[N, float]]:
        found = self._nodes.get(node)
        return [] if found is None else [(target, edge.weight - edge.error) for target, edge in found.out.items()]

    def _one(self, now: float) -> float:
        """What one observation weighs now."""
        if self._began is None:
            self._began = self._now = now
        self._now = max(self._now, now)
        past = (self._now - self._began) / self.settings.half_life
        if past > HALF_LIVES:
            self._rescale(2.0**-past)
            self._began, past = self._now, 0.0
        return float(2.0**past)

    def _rescale(self, factor: float) -> None:
        for node in list(self._nodes):
            found = self._nodes[node]
            found.weight *= factor
            before = len(found.out)
            for edge in found.out.values():
                edge.weight *= factor
                edge.error *= factor
            found.out = {target: edge for target, edge in found.out.items() if edge.weight >= NOTHING}
            self._edges -= before - len(found.out)
            if found.weight < NOTHING:
                self.forget(node)

    def _shrink(self, kept: N) -> None:
        while len(self._nodes) > self.settings.most_nodes or self._edges > self.settings.most_edges:
            if not self.shed(kept):  # one node whose edges alone are too many
                return

    def shed(self, kept: N | None = None) -> bool:
        """Forget a node that was quiet for long and weighs little, but not `kept`; False: there is no other."""
        quiet = [node for node in islice(self._nodes, PROBED) if node != kept]
        if quiet:
            self.forget(min(quiet, key=lambda node: self._nodes[node].weight))
        return bool(quiet)


def _lately(edge: _Edge, visits: int) -> float:
    """The share of the source's last visits that it followed, and a standard error of that: an edge that leads nowhere
    any more, however heavy it is, is not believed after two dozen visits."""
    share = edge.lately * (1 - NEWS) ** (visits - edge.at) / (1 - (1 - NEWS) ** max(1, visits))
    share = min(1.0, share)
    return share + sqrt(share * (1 - share) * NEWS / (2 - NEWS))


_BY: dict[Order, Callable[[Candidate[Any]], tuple[float, float, int]]] = {
    "rank": lambda one: (-one.rank, -one.probability, one.hop),
    "probability": lambda one: (-one.probability, -one.rank, one.hop),
}
