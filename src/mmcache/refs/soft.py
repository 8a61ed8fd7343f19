"""References by time: a parent was linked at some time, a child changed at some time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mmcache.model.key import Key
from mmcache.refs.forward import ForwardReferences, Places, picked


class SoftReferences(ForwardReferences):
    """See `References` and `Checked`. Weak: no reference delays an eviction (`holds` is 0); the cheapest to keep.

    A parent is stale when a child, or a child's child, changed after it was linked. Time is a count of changes, so that
    no clock can step back and no two changes fall together. A parent that is linked again keeps its first time: what it
    was linked to then may have changed since.
    """

    def _cleared(self) -> None:
        self._now = 0
        self._changed_at, self._linked_at = array("q"), array("q")  # of a number

    def _numbered(self) -> None:
        self._changed_at.append(0)
        self._linked_at.append(0)

    def _linked(self, parent: int, children: Sequence[int], *, anew: bool) -> None:
        if anew:
            self._linked_at[parent] = self._now

    def _changed(self, number: int) -> None:
        self._now += 1
        self._changed_at[number] = self._now

    def _kept(self, rows: Places, numbers: Places) -> None:
        self._changed_at, self._linked_at = picked(self._changed_at, numbers), picked(self._linked_at, numbers)

    def valid(self, parent: Key) -> bool:
        """See `Checked.valid`. O(links below `parent`)."""
        with self._lock:
            number = self._numbers.get(parent)
            below = [] if number is None else [number]
            visited = set(below)
            while below:
                number = below.pop()
                linked = self._linked_at[number]
                for child in self._child[self._first[number] : self._end[number]]:
                    if self._changed_at[child] > linked:
                        return False
                    if child not in visited:
                        visited.add(child)
                        below.append(child)
        return True
