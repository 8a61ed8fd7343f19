"""References by version: a block has a version number, and a parent remembers those of its children."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mmcache.model.key import Key
from mmcache.refs.forward import ForwardReferences, Places, picked

_WRAP = 0xFFFFFFFF


class VersionedReferences(ForwardReferences):
    """See `References` and `Checked`. A change costs O(1) whoever needs the block: its version number moves on.

    A parent is stale when the version of a child is not the one that it was linked to, or when a child that was made
    from others is stale. It is found when it is checked: one by one by `valid`, or all at once by `reach`. References
    are strong: a number for each block says how many parents need it.
    """

    def _cleared(self) -> None:
        self._version, self._count = array("I"), array("I")  # of a number
        self._seen = array("I")  # of a row: the child's version when it was linked

    def _numbered(self) -> None:
        self._version.append(0)
        self._count.append(0)

    def _linked(self, parent: int, children: Sequence[int], *, anew: bool) -> None:
        self._seen.extend([self._version[child] for child in children])

    def _moved(self, first: int, end: int) -> None:
        self._seen.extend(self._seen[first:end])

    def _held(self, children: Sequence[int], step: int) -> None:
        count = self._count
        for child in children:
            count[child] += step

    def _changed(self, number: int) -> None:
        self._version[number] = (self._version[number] + 1) & _WRAP

    def _kept(self, rows: Places, numbers: Places) -> None:
        self._version, self._count = picked(self._version, numbers), picked(self._count, numbers)
        self._seen = picked(self._seen, rows)

    def holds(self, key: Key) -> int:
        """See `References.holds`."""
        with self._lock:
            number = self._numbers.get(key)
            return 0 if number is None else self._count[number]

    def valid(self, parent: Key) -> bool:
        """See `Checked.valid`. O(links below `parent`)."""
        with self._lock:
            number = self._numbers.get(parent)
            below = [] if number is None else [number]
            visited = set(below)
            while below:
                number = below.pop()
                for row in range(self._first[number], self._end[number]):
                    child = self._child[row]
                    if self._seen[row] != self._version[child]:
                        return False
                    if child not in visited:
                        visited.add(child)
                        below.append(child)
        return True
