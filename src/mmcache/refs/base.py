"""`References`: which blocks need which. A reference delays eviction, never beyond the limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from mmcache.model.key import Key


@runtime_checkable
class References(Protocol):
    """A directed graph parent → children; cycles are allowed."""

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """`parent` (an answer, a fused block) needs `children`. Adds to earlier links."""

    def unlink(self, parent: Key) -> None:
        """`parent` is gone; its children are no longer held by it."""

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        """`keys` and all parents, transitively, that must go when `keys` change."""

    def holds(self, key: Key) -> int:
        """How many parents need `key`."""
