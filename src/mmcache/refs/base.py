"""`References`: which blocks need which. A reference delays eviction, never beyond the limit.

Nothing stale may be served, so a tracker errs on one side only: what was made from a block that changed must be
reached, also when something between them left the cache long ago; what is reached without need costs a computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from mmcache.model.key import Key

MOST_EDGES = 1 << 20
"""Links that a tracker remembers by default; see `References.surplus`."""

MOST_GONE = 4096
"""Links of parents that left, remembered however few others there are."""


@runtime_checkable
class References(Protocol):
    """A directed graph parent → children; cycles are allowed. Safe under threads."""

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """`parent` (an answer, a fused block) is made from `children`. Adds to earlier links."""

    def unlink(self, parent: Key) -> bool:
        """`parent` changed, and all that `reach` gave for it is being dropped: what it was made from is forgotten.

        Whether it was linked. Call it before the block is dropped, and again after: who linked meanwhile may have read
        what was about to go.
        """

    def leave(self, parent: Key) -> None:
        """`parent` was evicted, has ended or was refused: it holds its children no more.

        `reach` goes on naming it. A copy may be left in another tier, a newer one may be on its way, or others may be
        made from it.
        """

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        """`keys` and all parents, transitively, that must go when `keys` change."""

    def holds(self, key: Key) -> int:
        """How many parents need `key`; 0 from a tracker whose references are weak."""

    def parents(self) -> list[Key]:
        """Whoever is linked, those that left too."""

    def surplus(self) -> list[Key]:
        """Parents with more links than can be remembered: invalidate them. First those that left, the oldest first.

        This bounds what parents leave behind that were never stored, were refused, or were evicted. O(1) when there
        are none.
        """

    def dangling(self, held: Callable[[Key], bool]) -> Iterator[tuple[Key, Key]]:
        """(parent, child) for each link of a parent that did not leave and is held, to a child that is not held."""


@runtime_checkable
class Checked(Protocol):
    """A tracker that can be asked about one parent: whether what it needs changed since it was linked.

    For where Python runs anyway, e.g. when a lower tier gives a block. The hit path reads a dict and asks nobody.
    """

    def valid(self, parent: Key) -> bool:
        """Whether nothing that `parent` was made from, transitively, was unlinked since. True without links."""
