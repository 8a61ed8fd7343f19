"""Moving blocks to where they should lie, a few pages at a time, for as long as it pays.

A move copies a page to a free place, or exchanges two pages; the arena does it under its lock, and only with pages that
nobody leases or shares. So a reader never waits for more than one copy, and never sees half of a move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mmcache.placement.arena import Arena, PageList
from mmcache.placement.ordering import Chain, Edge, Joining, Together, heaviest_first

Block = TypeVar("Block", bound=Hashable)

REPLAN = 256
"""Gathers between two plans, while plans find something to do."""
LEARNED = 256
"""Gathers that a tick learns from at most."""
PLANNED = 16
"""Steps of a plan that a tick makes at most: each looks at `EDGES` edges, walks `EDGES` chains, or looks for the place
of one chain, in an arena of `STEP` pages; in a larger one that counts for more steps."""
EDGES, STEP = 128, 1 << 14
LONGEST_REST = 64
"""A plan that finds nothing doubles the time until the next one, up to so many times `REPLAN`."""


@dataclass(frozen=True, slots=True)
class Price:
    """What decides whether a move pays, in any one unit of time."""

    seam: float
    """Saved by each gather for two neighbours that lie side by side."""
    page: float
    """Paid once for each page copied."""
    at_least: float = 1.0
    """A chain is laid when what it is expected to save is so many times what that costs."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one step did."""

    copied: int = 0
    """Pages."""
    kept: int = 0
    """Moves that were not made, since a page was leased, shared or gone meanwhile; a later plan may try again."""
    left: int = 0
    """Moves still planned; at least 1 while a plan is being made."""


@dataclass(frozen=True, slots=True)
class _Move:
    name: Hashable
    page_list: PageList
    at: int
    target: int


class Mover:
    """Lays the blocks of an arena. One thread adds, removes and ticks; `used` may be called from any, and appends."""

    def __init__(self, arena: Arena, together: Together | None = None, *, price: Price, backlog: int = 4096) -> None:
        """backlog: gathers kept until the next tick; older ones are not learned from."""
        self._arena, self._price = arena, price
        self.together = Together() if together is None else together
        self._lists: dict[Hashable, PageList] = {}
        self._pages: dict[Hashable, list[int]] = {}
        self._owner: dict[int, tuple[Hashable, int]] = {}
        self._seen: deque[tuple[Hashable, ...]] = deque(maxlen=backlog)
        self._queue: deque[_Move] = deque()
        self._planning: Iterator[int] | None = None
        self._next_plan, self._rest = 0, 1
        self.plans = 0

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, name: Hashable, page_list: PageList) -> None:
        """This block may be moved from now on."""
        self.remove(name)
        self._lists[name] = page_list
        self._pages[name] = page_list.pages
        for at, page in enumerate(self._pages[name]):
            self._owner[page] = name, at

    def remove(self, name: Hashable) -> None:
        """This block is gone, or may not be moved any more. Nothing for one that was not added."""
        self._lists.pop(name, None)
        for page in self._pages.pop(name, ()):
            if self._owner.get(page, (None, 0))[0] == name:
                del self._owner[page]

    def used(self, names: Sequence[Hashable]) -> None:
        """One gather of these blocks. One append."""
        self._seen.append(tuple(names))

    @property
    def resting(self) -> bool:
        """Whether nothing is planned, and the last plan found nothing that pays."""
        return not self._queue and self._planning is None and self._rest > 1

    def tick(self, pages: int) -> Ticked:
        """Learn from what was gathered, go on with a plan, and copy about `pages` pages at most (an exchange copies
        two). Each of the three is bounded; a plan takes several ticks where there is much to plan."""
        for _ in range(min(LEARNED, len(self._seen))):
            self.together.used(self._seen.popleft())
        if self._planning is None and not self._queue and self.together.gathers >= self._next_plan:
            self.plans += 1
            self._planning = self._plan()
        if self._planning is not None:
            self._go_on(self._planning)
        copied = kept = 0
        while self._queue and copied + 2 <= max(2, pages):
            done = self._move(self._queue.popleft())
            copied += done or 0
            kept += done == 0
        return Ticked(copied, kept, max(len(self._queue), self._planning is not None))

    def _go_on(self, planning: Iterator[int]) -> None:
        """With a plan. What it queued so far may be moved before the rest is planned: it has taken those places."""
        steps = 0
        while steps < PLANNED:
            step = next(planning, None)
            if step is None:
                self._planning = None
                return
            steps += step

    def _move(self, move: _Move) -> int | None:
        """Pages copied; None where it lies there already."""
        page_list = self._lists.get(move.name)
        if page_list is None or page_list is not move.page_list:  # gone, or another under that name, with other pages
            return 0
        source = page_list.pages[move.at]
        if source == move.target:
            return None
        there = self._owner.get(move.target)
        occupant = None if there is None else (self._lists[there[0]], there[1])
        done = self._arena.move(page_list, move.at, move.target, occupant)
        if done:
            self._put(move.name, move.at, move.target)
            if there is None:
                self._owner.pop(source, None)
            else:
                self._put(*there, source)
        return done

    def _put(self, name: Hashable, at: int, page: int) -> None:
        self._owner[page] = name, at
        self._pages[name][at] = page

    # What is to be done -----------------------------------------------------------------------------------------------

    def _plan(self) -> Iterator[int]:
        """Fill the queue, giving after each bit of work how many steps that was. Blocks may come and go meanwhile."""
        began = self.together.gathers
        for n, (name, page_list) in enumerate(list(self._lists.items())):
            if not self._arena.alive(page_list) and self._lists.get(name) is page_list:
                self.remove(name)
            if n % (8 * EDGES) == 0:
                yield 1
        least = self._price.at_least * self._price.page * 2 / max(self._price.seam, 1e-300)
        joining = Joining()
        for n, edge in enumerate(self.together.edges(least)):
            if self._may_pay(edge):
                joining.add(edge)
            if n % EDGES == 0:
                yield 1
        found = []
        for n, chain in enumerate(joining.chains()):
            found.append(chain)
            if n % EDGES == 0:
                yield 1
        fixed = self._arena.fixed(self._owner)
        weight = 1 + len(fixed) // STEP
        left, planned = sorted(found, key=heaviest_first, reverse=True), False
        while left:
            chain = left.pop()
            if all(name in self._pages for name in chain.blocks):
                before = len(self._queue)
                left += self._lay(chain, fixed)
                planned |= len(self._queue) > before
            yield weight
        self._rest = 1 if planned else min(2 * self._rest, LONGEST_REST)
        self._next_plan = began + self._rest * REPLAN

    def _may_pay(self, edge: Edge) -> bool:
        """Whether bringing the smaller of both blocks to the other would pay."""
        one, other = self._pages.get(edge.one), self._pages.get(edge.other)
        if not one or not other:
            return False
        least = self._price.at_least * self._price.page * 2 * min(len(one), len(other))
        return self._price.seam * edge.weight > least

    def _lay(self, chain: Chain, fixed: npt.NDArray[np.bool_]) -> tuple[Chain, ...]:
        """Queue what brings a chain together, and say that its places are taken. Where there is no room for all of it,
        it is to be laid as what it gives back, the last one first: each side of its lightest edge by itself."""
        held = [(name, self._pages[name]) for name in chain.blocks]
        pages = np.array([page for _, numbers in held for page in numbers], np.int64)
        saved = self._price.seam * self._open_seams(chain)
        place = self._place(pages, fixed) if saved > 0.0 else None
        if place is None and saved > 0.0 and len(held) > 1:
            cut = min(range(len(chain.weights)), key=chain.weights.__getitem__)
            return (
                Chain(chain.blocks[cut + 1 :], chain.weights[cut + 1 :]),
                Chain(chain.blocks[: cut + 1], chain.weights[:cut]),
            )
        if place is not None:
            wrong = np.flatnonzero(pages != np.arange(place, place + len(pages)))
            if saved > self._price.at_least * self._price.page * 2 * len(wrong):
                steps = [(name, at) for name, numbers in held for at in range(len(numbers))]
                for n in wrong.tolist():
                    name, at = steps[n]
                    self._queue.append(_Move(name, self._lists[name], at, place + n))
                fixed[place : place + len(pages)] = True
                return ()
        fixed[pages] = True  # it stays where it is, and no lighter chain takes its places
        return ()

    def _open_seams(self, chain: Chain) -> float:
        """How often, of late, a gather met a seam in this chain that laying it would close."""
        total = max(chain.weights, default=0.0) * seams(self._pages[chain.blocks[0]])
        for (one, other), weight in zip(pairwise(chain.blocks), chain.weights, strict=True):
            before, after = self._pages[one], self._pages[other]
            apart = after[0] != before[-1] + 1 and before[0] != after[-1] + 1
            total += weight * (apart + seams(after))
        return total

    @staticmethod
    def _place(pages: npt.NDArray[np.int64], fixed: npt.NDArray[np.bool_]) -> int | None:
        """Where the pages come to lie with the fewest moves: a start that leaves some of them where they are, else
        the first that is not taken."""
        count, total = len(pages), len(fixed)
        if count > total:
            return None
        taken = np.concatenate([[0], np.cumsum(fixed)])
        clear = taken[count:] == taken[: total - count + 1]
        starts, right = np.unique(pages - np.arange(count), return_counts=True)
        within = (starts >= 0) & (starts <= total - count)
        starts, right = starts[within], right[within]
        starts, right = starts[clear[starts]], right[clear[starts]]
        if len(starts):  # of equal ones, one that leaves no gap beside what is taken
            walled = np.concatenate([[True], fixed, [True]])
            touching = walled[starts].astype(np.float64) + walled[starts + count + 1]
            return int(starts[np.argmax(right + 0.4 * touching)])
        anywhere = np.flatnonzero(clear)
        return int(anywhere[0]) if len(anywhere) else None


def seams(pages: Sequence[int]) -> int:
    """Seams: places where the next page is not the neighbour."""
    return sum(after != before + 1 for before, after in pairwise(pages))


def ordered(found: Sequence[Chain], blocks: Sequence[Block]) -> Iterator[Block]:
    """All `blocks` in the order of the chains, then those of none: what lays an arena out once, from nothing."""
    known, given = {block: block for block in blocks}, set[Block]()
    for chain in found:
        for block in chain.blocks:
            if block in known:
                ours = known[block]
                given.add(ours)
                yield ours
    yield from (block for block in blocks if block not in given)
