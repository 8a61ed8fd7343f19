"""Links known from the parent's side only: less memory, and who needs a block is found by looking at all links.

Keys are numbered; a link is a row of two columns, four bytes each. The rows of one parent lie side by side, the parent
linked longest ago first. What is unlinked leaves dead rows, which are cleared away once they are the majority.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from mmcache.forks import QuietLock
from mmcache.model.key import Key
from mmcache.refs.base import MOST_EDGES, MOST_GONE
from mmcache.refs.limits import EdgeLimit

_DEAD = -1
_FEW_ROWS = 1024
_LOOKS = 4
"""Looks at all rows that cost as much as sorting them: after so many they get an index, 4 bytes a link."""

Places = npt.NDArray[np.intp]


class ForwardReferences:
    """See `References`. What trackers share that know a link from the parent's side. Weak: it holds nothing.

    `link` is an append. `reach` looks at all rows, in numpy, a level of parents at a time; once it has looked often
    enough it sorts them, and looks only at those that were added since.
    """

    def __init__(self, most_edges: int = MOST_EDGES, most_gone: int = MOST_GONE) -> None:
        """Raises `SettingsError` for a limit below one link."""
        self._limit = EdgeLimit(most_edges, most_gone)
        self._lock = QuietLock()
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._first, self._end = array("i"), array("i")  # the rows of a number, none where equal
        self._parent, self._child = array("i"), array("i")  # of a row
        self._gone: dict[int, None] = {}
        self._dead = self._gone_edges = 0
        self._index, self._looked = NO_INDEX, 0
        self._cleared()

    # What a tracker may add; called under the lock ------------------------------------------------------------------

    def _cleared(self) -> None:
        """There are no numbers and no rows."""

    def _numbered(self) -> None:
        """The next number was given to a key."""

    def _linked(self, parent: int, children: Sequence[int], *, anew: bool) -> None:
        """Rows were appended. `anew`: `parent` had none before."""

    def _moved(self, first: int, end: int) -> None:
        """Rows were appended that are copies of these."""

    def _held(self, children: Sequence[int], step: int) -> None:
        """`children` are held by one parent more (+1) or less (-1)."""

    def _changed(self, number: int) -> None:
        """The key of that number was unlinked."""

    def _kept(self, rows: Places, numbers: Places) -> None:
        """Only these rows and numbers are left, in this order."""

    # References -----------------------------------------------------------------------------------------------------

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """See `References.link`."""
        children = dict.fromkeys(children)  # before the lock: whoever gives them may ask this tracker
        with self._lock:
            wanted = [self._number(child) for child in children]
            if not wanted:
                return
            number = self._number(parent)
            first, end = self._first[number], self._end[number]
            if number in self._gone:
                self._return(number)
            if first != end:
                known = set(self._child[first:end])
                wanted = [child for child in wanted if child not in known]
                first = self._move_to_the_end(number)
            else:
                first = len(self._child)
            self._child.extend(wanted)
            self._parent.extend([number] * len(wanted))
            self._linked(number, wanted, anew=first == len(self._child) - len(wanted))
            self._held(wanted, +1)
            self._first[number], self._end[number] = first, len(self._child)
            self._tidy()

    def _number(self, key: Key) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._first.append(0)
            self._end.append(0)
            self._numbered()
        return number

    def _move_to_the_end(self, number: int) -> int:
        first, end = self._first[number], self._end[number]
        if end == len(self._child):
            return first
        place = len(self._child)
        self._child.extend(self._child[first:end])
        self._parent.extend(self._parent[first:end])
        self._moved(first, end)
        self._bury(first, end)
        return place

    def _bury(self, first: int, end: int) -> None:
        self._parent[first:end] = array("i", [_DEAD]) * (end - first)
        self._dead += end - first

    def _return(self, number: int) -> None:
        first, end = self._first[number], self._end[number]
        del self._gone[number]
        self._gone_edges -= end - first
        self._held(self._child[first:end], +1)

    def leave(self, parent: Key) -> None:
        """See `References.leave`."""
        with self._lock:
            number = self._numbers.get(parent, _DEAD)
            if number == _DEAD or number in self._gone:
                return
            first, end = self._first[number], self._end[number]
            if first != end:
                self._gone[number] = None
                self._gone_edges += end - first
                self._held(self._child[first:end], -1)

    def unlink(self, parent: Key) -> bool:
        """See `References.unlink`."""
        with self._lock:
            if (number := self._numbers.get(parent)) is None:
                return False  # made from nothing, and nothing was made from it
            self._changed(number)
            first, end = self._first[number], self._end[number]
            if first == end:
                return False
            if number in self._gone:
                self._return(number)
            self._held(self._child[first:end], -1)
            self._bury(first, end)
            self._first[number] = self._end[number] = 0
            self._tidy()
            return True

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        """See `References.reach`."""
        reached = set(keys)
        with self._lock:
            known = [number for key in reached if (number := self._numbers.get(key)) is not None]
            if known and self._child:
                reached.update(map(self._keys.__getitem__, self._above(known)))
        return reached

    def _above(self, known: list[int]) -> list[int]:
        """`known` and all parents, transitively: by the index where it reaches, by a look at the rows since."""
        parent, child = np.frombuffer(self._parent, np.int32), np.frombuffer(self._child, np.int32)
        reached = np.zeros(len(self._keys) + 1, np.bool_)
        reached[_DEAD] = True  # the last place stands for the parent of dead rows: never news
        reached[known] = True
        frontier = np.array(known, np.int32)
        while frontier.size:
            if self._looked > _LOOKS * len(child):
                self._index, self._looked = Index.of(child, len(self._keys)), 0
            found = parent[self._index.rows(frontier)]
            if self._index.covered < len(child):
                since = slice(self._index.covered, None)
                self._looked += len(child) - self._index.covered
                looked = parent[since][reached.take(child[since], mode="clip")]  # in range; unchecked is twice as fast
                found = np.concatenate((found, looked))
            news = found[~reached[found]]
            reached[news] = True
            frontier = np.unique(news)
        return np.flatnonzero(reached[:_DEAD]).tolist()

    def holds(self, key: Key) -> int:
        """See `References.holds`: these are weak."""
        return 0

    def parents(self) -> list[Key]:
        """See `References.parents`."""
        with self._lock:
            return [self._keys[number] for number in dict.fromkeys(self._parent) if number != _DEAD]

    def surplus(self) -> list[Key]:
        """See `References.surplus`."""
        if not self._limit.excess(len(self._child) - self._dead, self._gone_edges):
            return []
        with self._lock:
            gone = [(self._keys[number], self._end[number] - self._first[number]) for number in self._gone]
            others = (
                (self._keys[number], self._end[number] - self._first[number])
                for number in dict.fromkeys(self._parent)
                if number != _DEAD and number not in self._gone
            )
            return list(self._limit.choose(len(self._child) - self._dead, self._gone_edges, gone, others))

    def dangling(self, held: Callable[[Key], bool]) -> Iterator[tuple[Key, Key]]:
        """See `References.dangling`. Of the graph as it was when asked."""
        with self._lock:
            keys, gone = list(self._keys), {*self._gone, _DEAD}
            rows = zip(self._parent[:], self._child[:], strict=True)
        links = ((keys[parent], keys[child]) for parent, child in rows if parent not in gone)
        return ((parent, child) for parent, child in links if held(parent) and not held(child))

    # Clearing away --------------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Amortised O(1) a link: the cost of clearing dead rows away was paid for by as many calls that made them."""
        alive = len(self._child) - self._dead
        if not alive and self._keys:
            self._clear()
        elif self._dead > max(alive, _FEW_ROWS):
            self._compact()

    def _compact(self) -> None:
        parent, child = np.frombuffer(self._parent, np.int32), np.frombuffer(self._child, np.int32)
        rows = np.flatnonzero(parent != _DEAD)
        parent, child = parent[rows], child[rows]
        used = np.zeros(len(self._keys), np.bool_)
        used[parent] = used[child] = True
        numbers = np.flatnonzero(used)
        renumbered = np.cumsum(used, dtype=np.int32) - 1
        firsts = np.flatnonzero(np.diff(parent, prepend=_DEAD))  # of each run of one parent's rows
        first, end = np.zeros((2, len(numbers)), np.int32)
        first[renumbered[parent[firsts]]] = firsts
        end[renumbered[parent[firsts]]] = np.append(firsts[1:], len(parent))
        self._gone = dict.fromkeys(renumbered[list(self._gone)].tolist()) if self._gone else {}
        self._keys = list(compress(self._keys, used))
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        self._first, self._end = packed(first, "i"), packed(end, "i")
        self._parent, self._child = packed(renumbered[parent], "i"), packed(renumbered[child], "i")
        self._dead = 0
        self._index, self._looked = NO_INDEX, 0
        self._kept(rows, numbers)


@dataclass(frozen=True)
class Index:
    """The first `covered` rows by child."""

    covered: int
    order: npt.NDArray[np.int32]
    """Rows, sorted by child."""
    first: npt.NDArray[np.int32]
    """Where the rows of each number begin in `order`; one more at the end."""

    @staticmethod
    def of(child: npt.NDArray[np.int32], numbers: int) -> Index:
        """Of the column `child`, whose numbers are below `numbers`. Two radix passes."""
        order = np.argsort(child.astype(np.uint16), kind="stable")
        if numbers > 1 << 16:
            order = order[np.argsort((child[order] >> 16).astype(np.uint16), kind="stable")]
        first = np.zeros(numbers + 1, np.int32)
        np.cumsum(np.bincount(child, minlength=numbers), out=first[1:])
        return Index(len(child), order.astype(np.int32), first)

    def rows(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Whose child is one of `numbers`."""
        numbers = numbers[numbers < len(self.first) - 1]
        starts = self.first[numbers]
        counts = self.first[numbers + 1] - starts
        before = np.cumsum(counts) - counts
        rows: npt.NDArray[np.int32] = self.order[np.arange(counts.sum()) + np.repeat(starts - before, counts)]
        return rows


NO_INDEX = Index(0, np.zeros(0, np.int32), np.zeros(1, np.int32))


def packed(numbers: npt.NDArray[np.generic], typecode: str) -> array[int]:
    """`numbers` as a growing array of one C type."""
    made = array(typecode)
    made.frombytes(numbers.astype(np.dtype(typecode), copy=False).tobytes())
    return made


def picked(column: array[int], places: Places) -> array[int]:
    """`column` at `places`."""
    return packed(np.frombuffer(column, np.dtype(column.typecode))[places], column.typecode)
