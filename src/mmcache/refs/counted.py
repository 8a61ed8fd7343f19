"""References counted exactly, both ways."""

from __future__ import annotations

from collections.abc import Iterable

from mmcache.forks import Lock
from mmcache.model.key import Key


class CountedReferences:
    """See `References`. A parent counts once for each child, however often they are linked; safe under threads.

    A set of parents for each child, not a bare number: a number cannot say who must go when the child changes.
    """

    def __init__(self) -> None:
        self._children: dict[Key, set[Key]] = {}
        self._parents: dict[Key, set[Key]] = {}
        self._lock = Lock()

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """See `References.link`."""
        children = set(children)
        if not children:
            return
        with self._lock:
            self._children.setdefault(parent, set()).update(children)
            for child in children:
                self._parents.setdefault(child, set()).add(parent)

    def unlink(self, parent: Key) -> None:
        """See `References.unlink`. What links to `parent` stays: its own parents still name it."""
        with self._lock:
            for child in self._children.pop(parent, ()):
                parents = self._parents[child]
                parents.discard(parent)
                if not parents:
                    del self._parents[child]

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        """See `References.reach`. Breadth first, so neither cycles nor long chains hurt."""
        reached = set(keys)
        with self._lock:
            frontier = set(reached)
            while frontier:
                frontier = {parent for key in frontier for parent in self._parents.get(key, ())} - reached
                reached |= frontier
        return reached

    def holds(self, key: Key) -> int:
        """See `References.holds`."""
        return len(self._parents.get(key, ()))
