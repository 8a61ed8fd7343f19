"""`Outstanding`: what was brought and not asked for yet. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from mmcache.model.key import Key
from mmcache.prefetch.work import MOST_SESSIONS as MOST_EXPECTED
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
    """From when on it will hardly be asked for; before it is held, when it was brought."""
    deadline: float
    cost: float
    """Seconds that computing it took."""
    computed: bool
    sessions: set[Hashable]
    """Who is expected to ask for it."""
    asked: bool = False
    """Somebody did, whoever it was."""
    given_up: bool = False
    """It was counted as wasted."""


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

    def add(self, key: Key, one: Brought, hop: int) -> None:
        """It was brought; `one.unlikely` says when: it is moved to where it is unlikely."""
        horizon = max(LEAST_SECONDS, self._gaps * self._mean * max(1, hop))
        one.unlikely = min(one.deadline, one.unlikely + horizon)
        self._held[key] = one
        self._held.move_to_end(key)

    def expect(self, key: Key, session: Hashable) -> None:
        """Another session is expected to ask for it, too."""
        found = self._held.get(key)
        if found is not None and len(found.sessions) < MOST_EXPECTED:
            found.sessions.add(session)

    def forget(self, key: Key) -> None:
        """It is clear what became of it."""
        self._held.pop(key, None)

    def unlikely(self, now: float) -> list[Brought]:
        """Those not settled that will hardly be asked for now; and the oldest where there are too many."""
        surplus = max(0, len(self._held) - self._most)
        return [
            one
            for place, one in enumerate(self._held.values())
            if one.block.used is None and (one.unlikely <= now or place < surplus)
        ]

    def expire(self, now: float) -> None:
        """Forget what is over, and what is too much; those that count as unused already."""
        surplus = len(self._held) - self._most
        for place, (key, one) in enumerate(list(self._held.items())):
            if one.deadline <= now or place < surplus:
                del self._held[key]
