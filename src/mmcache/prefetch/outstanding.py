"""`Outstanding`: what was brought and not asked for yet. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from mmcache.model.key import Key
from mmcache.prefetch.worth import Block

LEAST_SECONDS = 10.0
"""Nothing is called unused before."""
USUAL_GAP = 30.0
"""Seconds between two visits, before any were seen."""
NEWS = 0.05
"""Weight of one more gap in the mean."""
MOST_SESSIONS = 4096


@dataclass(slots=True)
class Brought:
    """A block that was brought."""

    block: Block
    unlikely: float
    """From when on it will hardly be asked for."""
    deadline: float
    cost: float
    """Seconds that computing it took."""
    computed: bool


class Outstanding:
    """At most `most` blocks by key, and when to call them unused."""

    def __init__(self, most: int, gaps: float) -> None:
        """gaps: the usual times between two visits, and hops, after which nobody is expected to ask any more."""
        self._most, self._gaps = most, gaps
        self._held: OrderedDict[Key, Brought] = OrderedDict()  # oldest first
        self._mean = USUAL_GAP
        self._last: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def gap(self, session: Hashable, at: float) -> None:
        """A session's visit: learn how far apart they are."""
        before = self._last.pop(session, None)
        self._last[session] = at
        if len(self._last) > MOST_SESSIONS:
            self._last.popitem(last=False)
        if before is not None and 0.0 < at - before <= 600.0:
            self._mean += NEWS * (at - before - self._mean)

    def find(self, key: Key) -> Brought | None:
        """What is known of `key`."""
        return self._held.get(key)

    def add(self, key: Key, block: Block, now: float, *, hop: int, ttl: float, cost: float, computed: bool) -> None:
        """It was brought, and stays for `ttl` seconds."""
        horizon = min(ttl, max(LEAST_SECONDS, self._gaps * self._mean * max(1, hop)))
        self._held[key] = Brought(block, now + horizon, now + ttl, cost, computed)
        self._held.move_to_end(key)

    def forget(self, key: Key) -> None:
        """It is clear what became of it."""
        self._held.pop(key, None)

    def unlikely(self, now: float) -> list[Key]:
        """Those not settled that will hardly be asked for now; and the oldest where there are too many."""
        surplus = max(0, len(self._held) - self._most)
        return [
            key
            for place, (key, one) in enumerate(self._held.items())
            if one.block.used is None and (one.unlikely <= now or place < surplus)
        ]

    def expire(self, now: float) -> None:
        """Forget what is over, and what is too much; those that count as unused already."""
        surplus = len(self._held) - self._most
        for place, (key, one) in enumerate(list(self._held.items())):
            if one.deadline <= now or place < surplus:
                del self._held[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)
