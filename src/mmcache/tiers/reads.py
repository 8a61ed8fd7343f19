"""`Reads`: which of the memory tier's hits nobody else counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from mmcache import forks
from mmcache.model.key import Key
from mmcache.tiers.hit_index import HitIndex

Hearer = Callable[[Sequence[Key]], object]


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
        self._changing = forks.Lock()
        self._hearers: tuple[Hearer, ...] = ()
        forks.join(self)

    def touched(self, key: Key) -> None:
        """Record and count a hit that its caller counts too."""
        next(self._told)  # first: `alone` is never more than there are
        self._index.touched(key)

    def drain(self) -> list[Key]:
        """Keys hit since the last time, oldest first."""
        keys = self._index.drain()
        if keys:
            for hearer in self._hearers:
                hearer(keys)
        return keys

    def hear(self, hearer: Hearer) -> None:
        """Tell `hearer` which keys were hit, each time that is looked at, under the tier's lock: it appends, and does
        not raise. Some hits may be lost."""
        with self._changing:
            self._hearers = (*self._hearers, hearer)

    def unhear(self, hearer: Hearer) -> None:
        """Tell it no more; nothing where it is not told."""
        with self._changing:
            self._hearers = tuple(other for other in self._hearers if other != hearer)

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
