"""`Reads`: which of the memory tier's hits nobody else counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from mmcache import forks
from mmcache.model.key import Key
from mmcache.tiers.hit_index import HitIndex


class Reads:
    """In front of an index whose own `peek`, `fresh` and `get` are called without anybody hearing of it.

    Hits of lookups that look elsewhere too come through `touched`, and who makes them counts them by labels; `alone`
    are the others. Costs the index's own calls nothing.
    """

    fork_order = 5

    def __init__(self, index: HitIndex) -> None:
        self._index = index
        self._told = itertools.count()
        self._inherited = 0
        self.shown: Callable[[Sequence[Key]], object] | None = None
        """Hears which keys were hit, each time that is looked at, under the tier's lock; some may be lost."""
        forks.join(self)

    def touched(self, key: Key) -> None:
        """Record and count a hit that its caller counts too."""
        next(self._told)  # first: `alone` is never more than there are
        self._index.touched(key)

    def drain(self) -> list[Key]:
        """Keys hit since the last time, oldest first."""
        keys = self._index.drain()
        if self.shown is not None and keys:
            self.shown(keys)
        return keys

    @property
    def alone(self) -> int:
        """Hits of this process that nobody else counts; exact when nobody reads, never too many."""
        return max(0, self._all_alone() - self._inherited)

    def _all_alone(self) -> int:
        hits = self._index.hits
        return hits - int(repr(self._told)[len("count(") : -1])  # reads a `count` without advancing it

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """See `forks.Forkable`."""
        if child:
            self._inherited = self._all_alone()
