"""Other ways to say what comes next, in the place of the product's graph: everything else stays the product's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mmcache.lab.traces.sessions import Views
from mmcache.model.key import Key
from mmcache.prefetch.graph import BehaviourGraph, Candidate, GraphSettings

WINDOW = 2
"""Last blocks by which `NextPage` tells sessions apart; not more than the product remembers of each."""

Held = Callable[[Key], bool]
MakeGraph = Callable[[GraphSettings, Held], BehaviourGraph[Key]]
"""From the product's settings, and whether memory holds a block."""


class Markov(BehaviourGraph[Key]):
    """What came most often right after the last block: a chain of order 1, without decay, doubt, hops or bounds."""

    def __init__(self, settings: GraphSettings, held: Held) -> None:
        super().__init__(settings)
        self._held = held
        self._next: dict[Key, Counter[Key]] = {}

    def observe(self, node: Key, earlier: Sequence[Key], now: float) -> None:
        """Count a transition."""
        if earlier:
            self._next.setdefault(earlier[0], Counter())[node] += 1

    def candidates(
        self, recent: Sequence[Key], now: float, *, hops: int = 3, width: int = 8, most: int = 64
    ) -> list[Candidate[Key]]:
        """The most frequent ones that are not there."""
        follow = self._next.get(recent[0], Counter[Key]()) if recent else Counter[Key]()
        whole = follow.total()
        found = (Candidate(node, 1, count / whole, 1.0) for node, count in follow.most_common())
        return _first(found, most, recent, self._held)


class Popularity(BehaviourGraph[Key]):
    """What is asked for most often of all, whoever comes."""

    SORTS = 256
    """Lookups between two sortings."""

    def __init__(self, settings: GraphSettings, held: Held) -> None:
        super().__init__(settings)
        self._held = held
        self._counts: Counter[Key] = Counter()
        self._sorted: list[tuple[Key, int]] = []
        self._seen = 0

    def observe(self, node: Key, earlier: Sequence[Key], now: float) -> None:
        """Count a lookup."""
        self._counts[node] += 1
        if self._seen % self.SORTS == 0:
            self._sorted = self._counts.most_common()
        self._seen += 1

    def candidates(
        self, recent: Sequence[Key], now: float, *, hops: int = 3, width: int = 8, most: int = 64
    ) -> list[Candidate[Key]]:
        """The most popular ones that are not there."""
        found = (Candidate(node, 1, count / self._seen, 1.0) for node, count in self._sorted)
        return _first(found, most, recent, self._held)


class Wrong(BehaviourGraph[Key]):
    """The product's graph, a share of whose edges is led to random blocks at one moment. It goes on learning."""

    def __init__(self, settings: GraphSettings, share: float, after: int, seed: int) -> None:
        """after: lookups."""
        super().__init__(settings)
        self._share, self._left, self._random = share, after, random.Random(seed)

    def observe(self, node: Key, earlier: Sequence[Key], now: float) -> None:
        """Learn; and at the moment, be led astray."""
        super().observe(node, earlier, now)
        self._left -= 1
        if self._left == 0:
            known = list(self._nodes)
            for found in self._nodes.values():
                kept = {target: edge for target, edge in found.out.items() if self._random.random() >= self._share}
                for edge in [edge for target, edge in found.out.items() if target not in kept]:
                    kept.setdefault(self._random.choice(known), edge)
                self._edges -= len(found.out) - len(kept)
                found.out = kept


class Misled(BehaviourGraph[Key]):
    """The product's graph that never learns a share of its edges, but always others in their place."""

    def __init__(self, settings: GraphSettings, share: float, seed: int) -> None:
        super().__init__(settings)
        self._share, self._random = share, random.Random(seed)
        self._ends: dict[tuple[Key, Key], Key] = {}
        self._met: list[Key] = []

    def learn(self, source: Key, target: Key, now: float, lag: int = 1) -> None:
        """An edge, perhaps to elsewhere."""
        end = self._ends.get((source, target))
        if end is None:
            self._met.append(target)
            wrong = self._random.random() < self._share
            end = self._ends[source, target] = self._random.choice(self._met) if wrong else target
        super().learn(source, end, now, lag)


class NextPage(BehaviourGraph[Key]):
    """Knows what each session looks at next, as nobody can: how much there is to be won at all.

    It knows only blocks that were looked for before: others cannot be brought. Two sessions whose last blocks are the
    same are taken for one.
    """

    def __init__(self, settings: GraphSettings, views: Views) -> None:
        super().__init__(settings)
        following: dict[str, tuple[int, ...]] = {}
        lookups: list[tuple[int, tuple[int, ...]]] = []
        for view in reversed(views.views):
            after = following.get(view.session, ())
            lookups += [(block, after) for block in reversed(view.blocks)]
            following[view.session] = view.blocks
        self._lookups = lookups  # the last one is next
        self._key: dict[int, Key] = {}
        self._after: dict[tuple[Key, ...], tuple[int, ...]] = {}

    def observe(self, node: Key, earlier: Sequence[Key], now: float) -> None:
        """The next lookup of the stream."""
        block, after = self._lookups.pop()
        self._key[block] = node
        self._after[(node, *earlier)[:WINDOW]] = after

    def candidates(
        self, recent: Sequence[Key], now: float, *, hops: int = 3, width: int = 8, most: int = 64
    ) -> list[Candidate[Key]]:
        """All of the next page, however wide it is."""
        after = self._after.get(tuple(recent[:WINDOW]), ())
        return [Candidate(self._key[block], 1, 1.0, 1.0) for block in after if block in self._key]


def _first(found: Iterable[Candidate[Key]], most: int, recent: Sequence[Key], held: Held) -> list[Candidate[Key]]:
    kept: list[Candidate[Key]] = []
    for one in found:
        if len(kept) == most:
            break
        if one.node not in recent and not held(one.node):
            kept.append(one)
    return kept
