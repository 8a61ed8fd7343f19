"""References counted exactly, both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mmcache.forks import QuietLock
from mmcache.model.key import Key
from mmcache.refs.base import MOST_EDGES, MOST_GONE
from mmcache.refs.limits import EdgeLimit

_SMALL = 12
"""Up to so many parents of a child are a tuple: it takes a quarter of a set's bytes."""

_NONE: tuple[Key, ...] = ()


class CountedReferences:
    """See `References`. Strong and exact: who needs a block is known at any moment. Safe under threads.

    Parents and children are known from each other, so linking costs O(children) and `reach` O(links followed), however
    large the graph is. A parent counts once for each child, however often they are linked.
    """

    def __init__(self, most_edges: int = MOST_EDGES, most_gone: int = MOST_GONE) -> None:
        """Raises `SettingsError` for a limit below one link."""
        self._limit = EdgeLimit(most_edges, most_gone)
        self._children: dict[Key, tuple[Key, ...]] = {}  # the parent linked longest ago first
        self._parents: dict[Key, tuple[Key, ...] | set[Key]] = {}
        self._gone: dict[Key, None] = {}
        self._unheld: dict[Key, int] = {}  # child -> how many of its parents are gone
        self._edges = self._gone_edges = 0
        self._lock = QuietLock()

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """See `References.link`."""
        children = tuple(dict.fromkeys(children))
        if not children:
            return
        with self._lock:
            self._revive(parent)
            known = self._children.pop(parent, _NONE)
            if known:
                seen = set(known)
                children = tuple([child for child in children if child not in seen])
            self._children[parent] = known + children
            self._edges += len(children)
            for child in children:
                parents = self._parents.get(child, _NONE)
                if isinstance(parents, set):
                    parents.add(parent)
                elif len(parents) < _SMALL:
                    self._parents[child] = (*parents, parent)
                else:
                    self._parents[child] = {*parents, parent}

    def leave(self, parent: Key) -> None:
        """See `References.leave`."""
        with self._lock:
            if parent in self._children and parent not in self._gone:
                self._gone[parent] = None
                self._gone_edges += len(self._children[parent])
                for child in self._children[parent]:
                    self._unheld[child] = self._unheld.get(child, 0) + 1

    def _revive(self, parent: Key) -> None:
        if parent not in self._gone:
            return
        del self._gone[parent]
        self._gone_edges -= len(self._children[parent])
        for child in self._children[parent]:
            if self._unheld[child] == 1:
                del self._unheld[child]
            else:
                self._unheld[child] -= 1

    def unlink(self, parent: Key) -> bool:
        """See `References.unlink`. What links to `parent` stays until it is unlinked itself."""
        with self._lock:
            self._revive(parent)
            children = self._children.pop(parent, _NONE)
            self._edges -= len(children)
            for child in children:
                parents = self._parents[child]
                if isinstance(parents, set) and len(parents) > _SMALL // 2:
                    parents.discard(parent)
                elif left := tuple([other for other in parents if other != parent]):
                    self._parents[child] = left
                else:
                    del self._parents[child]
        return bool(children)

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        """See `References.reach`. Breadth first, so neither cycles nor long chains hurt."""
        reached = set(keys)
        with self._lock:
            parents_of = self._parents.get
            frontier: Iterable[Key] = list(reached)
            while frontier:
                found = set[Key]().union(*filter(None, map(parents_of, frontier)))
                found -= reached
                reached |= found
                frontier = found
        return reached

    def holds(self, key: Key) -> int:
        """See `References.holds`."""
        return max(0, len(self._parents.get(key, _NONE)) - self._unheld.get(key, 0))  # read without the lock

    def parents(self) -> list[Key]:
        """See `References.parents`."""
        with self._lock:
            return list(self._children)

    def surplus(self) -> list[Key]:
        """See `References.surplus`."""
        if not self._limit.excess(self._edges, self._gone_edges):
            return []
        with self._lock:
            gone = ((parent, len(self._children[parent])) for parent in self._gone)
            others = ((parent, len(links)) for parent, links in self._children.items() if parent not in self._gone)
            return list(self._limit.choose(self._edges, self._gone_edges, gone, others))

    def dangling(self, held: Callable[[Key], bool]) -> Iterator[tuple[Key, Key]]:
        """See `References.dangling`. Of the graph as it was when asked."""
        with self._lock:
            linked = [(parent, links) for parent, links in self._children.items() if parent not in self._gone]
        for parent, links in linked:
            if held(parent):
                yield from ((parent, child) for child in links if not held(child))
