"""Which combinations recur: plans are swapped in for those, and out again when they fade or do not pay.

No part of the product: see table `plans`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.events import Events
from mmcache.lab.plans_compiled import Combination, Compiled, Part, combination, plan
from mmcache.lookup import Lookup
from mmcache.model.clock import Clock
from mmcache.model.key import Key
from mmcache.scopes import Scopes
from mmcache.stats import Tally
from mmcache.store import Store

RECURRENCES = 8
"""Sightings before a plan is made; one in `EVERY` lookups is a sighting."""
EVERY = 31
"""A prime: of a picture and a text by turns, every 32nd lookup is always the same one of both."""
MOST_PLANS, MOST_COUNTED, MOST_PARTS = 64, 512, 16
REVIEW = 132 * EVERY
"""Lookups after which plans are reviewed."""
FADED = 32
"""A plan that answered fewer lookups between two reviews goes."""


class _Swapped:
    """A plan in use. Counts may be off by a few under threads; they decide nothing but whether it stays."""

    __slots__ = ("answered", "gave_up", "parts", "run")

    def __init__(self, parts: Combination, run: Compiled) -> None:
        self.parts, self.run = parts, run
        self.answered = self.gave_up = 0


class Plans:
    """Asked before the general path; None = it is to be asked. Bounded; safe under threads, since all that is swapped
    is one reference in a dict."""

    def __init__(
        self, store: Store, scopes: Scopes, tally: Tally, events: Events, clock: Clock, *,
        recurrences: int = RECURRENCES, every: int = EVERY, review: int = REVIEW, most: int = MOST_PLANS,
    ) -> None:  # fmt: skip
        """recurrences: sightings, one in `every` lookups, before a plan is made; review: lookups between two reviews,
        a multiple of `every`; most: plans at a time."""
        self._recurrences, self._every, self._review_after, self._most = recurrences, every, review, most
        self._store, self._scopes, self._tally, self._events, self._clock = store, scopes, tally, events, clock
        self._plans: dict[tuple[bytes, int], _Swapped] = {}
        self._seen: dict[Combination, int] = {}
        self._turn = 0
        self.made = self.dropped = 0

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, parts: Combination) -> bool:
        return bool(parts) and (found := self._plans.get(_place(parts))) is not None and found.parts == parts

    def look_up(self, keys: Sequence[Key]) -> list[Lookup] | None:
        """Hits of all `keys` in memory, counted and logged as the general path does; None, and no trace, where that is
        not the case or no plan is in. Raises `TierClosedError`, `InvalidInputError` as the general path would."""
        self._turn = turn = self._turn + 1
        if turn % self._every == 0:
            self._sighted(keys, turn)
        if not keys or type(keys[0]) is not Key:
            return None
        found = self._plans.get((keys[0][:16], len(keys)))
        if found is None:
            return None
        looks = found.run(keys)
        if looks is None:
            found.gave_up += 1
        else:
            found.answered += 1
        return looks

    def _sighted(self, keys: Sequence[Key], turn: int) -> None:
        if turn % self._review_after == 0:
            self._review()
        if not 0 < len(keys) <= MOST_PARTS or any(type(key) is not Key for key in keys):
            return
        parts = combination(keys)
        if _place(parts) in self._plans:  # this one, or one that is asked for more often
            return
        times = self._seen.get(parts, 0) + 1
        if times < self._recurrences:
            if len(self._seen) >= MOST_COUNTED:
                self._seen.clear()
            self._seen[parts] = times
            return
        self._seen.pop(parts, None)
        scopes = [self._scopes.find(key) for key in keys]
        known = [scope for scope in scopes if scope is not None]
        if len(known) < len(keys) or len(self._plans) >= self._most:
            return
        made = plan(parts, known, self._store, self._tally, self._events, self._clock)
        self._plans[_place(parts)] = _Swapped(parts, made)
        self.made += 1

    def _review(self) -> None:
        """Swap out what faded, and what gives up more often than it answers."""
        for place, swapped in list(self._plans.items()):
            if swapped.answered < max(FADED, swapped.gave_up):
                if self._plans.pop(place, None) is not None:
                    self.dropped += 1
            else:
                swapped.answered = swapped.gave_up = 0
        self._seen.clear()


def _place(parts: Sequence[Part]) -> tuple[bytes, int]:
    """Where a plan is looked for: by the first scope and the number of keys, which costs one look-up. Two combinations
    that share both cannot have plans at once."""
    return parts[0].scope, len(parts)
