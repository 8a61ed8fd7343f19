"""`Ranked`: a policy out of one scoring function."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.groups import Groups
from mmcache.policies.window import UseWindow

ENTROPIES = 5
"""Cross-attentions of a block that are remembered."""


class Tracked:
    """What a score may know of a block."""

    __slots__ = ("correction", "entropies", "facts", "group", "last", "order", "slot", "uses")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.uses = 0
        """Within the window, held or not; without a window, since it was stored. Storing is a use."""
        self.last = 0.0
        """When it was last used, monotonic seconds."""
        self.order = 0
        """The number of its last use, of all uses of all blocks."""
        self.entropies: tuple[float, ...] = ()
        """Nats, of its last `ENTROPIES` cross-attentions, oldest first."""
        self.correction = 0.0
        """What a forecast adds to `uses`."""
        self.group: Any = None
        self.slot = -1


Score = Callable[[Tracked, float], float]
"""`score(block, now)`: the lowest goes first. Must be pure, and no NaN."""
Parts = Callable[[Tracked, float], Mapping[str, float]]
"""`parts(block, now)`: what `score` was made of, by name, for `cache.explain`."""


class Ranked:
    """The block with the lowest `score(block, now)` goes first; of equals, the one whose last use is longest ago.

    (Or that came to its score longest ago, where news of it changed that score and there is no use in the window.)

        policy = Ranked(lambda block, now: block.facts.cost * block.uses / block.facts.size)   # seconds saved a byte

    A score that does not read `now` needs nothing more: blocks are grouped by score, and a heap holds the *distinct*
    scores. A use costs O(1), and O(log distinct scores) when its new score is one that no block has. So small whole
    numbers, or rounded ones, are O(1) however many blocks there are; a score that differs from block to block is a
    comparison sort, which nothing does in O(1).

    A score that changes with time alone must say which blocks cannot overtake each other, by `group`: within a group,
    whoever was used later never scores lower, at any time; and news of a block must not change its group. Then only
    the first block of each group is scored when victims are wanted: exact at that very moment, at the price of one
    score a group. (A sample of blocks would be inexact, a heap of old scores wrong.)

    least: `least(group, now)`: no block of the group scores less, so a group that cannot be next is not looked at.
    window: count `Tracked.uses` in it instead of since the block was stored.
    parts: what the score is made of; `explain` adds the score itself.
    """

    def __init__(
        self,
        score: Score,
        *,
        window: UseWindow | None = None,
        group: Callable[[Tracked], Hashable] | None = None,
        least: Callable[[Any, float], float] = lambda group, now: -math.inf,
        parts: Parts = lambda block, now: {"uses": float(block.uses)},
    ) -> None:
        self._score = score
        self._group = group
        self._least = least
        self._parts = parts
        self._window = window
        self._blocks: dict[Key, Tracked] = {}
        self._groups = Groups(window)
        self._heap: list[float] = []  # distinct scores; empty ones go when they come to the top
        self._queued: set[float] = set()
        self._order = 0
        self._now = -math.inf
        if window is not None:
            window.left = self._fell_out

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`. Storing is a use; to hear news of a known block is none."""
        block = self._blocks.get(key)
        known = block is not None
        if block is None:
            block = self._blocks[key] = Tracked(facts)
        block.facts = facts
        if facts.entropy is not None:
            block.entropies = (*block.entropies[1 - ENTROPIES :], facts.entropy)
        if not known:
            self._use(key, block, now)
        elif (group := self._group_of(block)) != block.group:
            self._place(key, block, group, block.slot)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        block = self._blocks.get(key)
        if block is not None:
            self._use(key, block, now)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        block = self._blocks.pop(key, None)
        if block is not None:
            self._groups.remove(key, block)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`."""
        self._advance(now)
        return self._by_heads(self._now) if self._group else self._by_score()

    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        """See `Explains.explain`."""
        block = self._blocks.get(key)
        if block is None:
            return {}
        self._advance(now)
        return {**self._parts(block, self._now), "score": self._score(block, self._now)}

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._now = now
        if self._window is not None:
            self._window.advance(now)

    def _use(self, key: Key, block: Tracked, now: float) -> None:
        if now > self._now:
            self._now = now
        self._order += 1
        block.order = self._order
        block.last = self._now
        if self._window is None:
            block.uses += 1
            self._place(key, block, self._group_of(block), -1)
        else:
            block.uses = self._window.use(key, now)
            self._place(key, block, self._group_of(block), self._window.newest)

    def _fell_out(self, key: Key, uses: int) -> None:
        block = self._blocks.get(key)
        if block is not None:
            block.uses = uses
            self._place(key, block, self._group_of(block), block.slot if uses else -1)

    def _group_of(self, block: Tracked) -> Any:
        return self._score(block, self._now) if self._group is None else self._group(block)

    def _place(self, key: Key, block: Tracked, group: Any, slot: int) -> None:
        self._groups.place(key, block, group, slot)
        if self._group is None and group not in self._queued:
            self._queued.add(group)
            heappush(self._heap, group)
            if len(self._heap) > 2 * len(self._groups) + 64:
                self._heap = list(self._groups)
                self._queued = set(self._heap)
                heapify(self._heap)

    def _by_score(self) -> Iterator[Key]:
        """Walks the heap from its root without changing it: what comes next is a child of what came before."""
        heap, groups = self._heap, self._groups
        while heap and heap[0] not in groups:
            self._queued.discard(heappop(heap))
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            score, place = frontier[0]
            children = [(heap[child], child) for child in (2 * place + 1, 2 * place + 2) if child < len(heap)]
            if score in groups:
                yield from groups.walk(score)
            heappop(frontier)
            for child in children:
                heappush(frontier, child)

    def _by_heads(self, now: float) -> Iterator[Key]:
        """Merges the groups by the scores of those that come next in each; a group is opened when its turn may come."""
        least, blocks, score = self._least, self._blocks, self._score
        # Of equal scores, the one used longest ago; a group that is not open yet first, for it may hold such a one.
        heads: list[tuple[float, int, int, Any, Iterator[Key] | None]] = [
            (least(group, now), -1, number, group, None) for number, group in enumerate(self._groups)
        ]
        heapify(heads)
        while heads:
            _, _, number, key, walk = heads[0]
            if walk is None:
                walk = self._groups.walk(key)
            else:
                yield key
            following = next(walk, None)
            if following is None:
                heappop(heads)
            else:
                block = blocks[following]
                heapreplace(heads, (score(block, now), block.order, number, following, walk))
