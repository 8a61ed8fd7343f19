"""`Heard`: what a watcher hears of a cache's uses: an append when it happens, all else when it is drained.

Lookups that memory does not answer alone are events. Hits that it does are in its recency ring, which loses some, and
shows them when it is next looked at. Who is told of visits (see `visits.Prefetcher`) hears all lookups as they come,
and in which session: then those are taken, and the other two are not.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mmcache.model.event import Event, Evicted, Expired, Failed, Hit, Invalidated, Missed, Moved, NearHit, Stored
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.visits import session

if TYPE_CHECKING:
    from mmcache.cache import Cache

T = TypeVar("T")
Use = tuple[Key, str]
"""A key was used in a session; a plain tuple, since it is made where it is used."""

ROOM = 65_536
"""Events, and visits, that wait."""
MOST_SHOWN = 16_384
"""Hits of memory that wait."""
MOST_USES = 20_000
"""Of one look; where there were more, the last ones stand for all."""
MOST_FLOWS = 8_192
"""Sessions whose last key is remembered."""


class _Shown(NamedTuple):
    """Keys that the memory tier's ring showed, in a feed among the events."""

    keys: tuple[Key, ...]


class Whereabouts:
    """Which lower tiers hold a key, as far as this process has heard: bounded, the ones told of last."""

    def __init__(self, most: int = ROOM) -> None:
        self._most = most
        self._held: OrderedDict[Key, dict[str, int]] = OrderedDict()

    def note(self, event: Event, memory: str) -> None:
        """memory: the name of the tier that can be asked itself."""
        match event:
            case Stored(key, tier, size):
                self._at(key, tier, size, memory)
            case Hit(key, tier):
                self._at(key, tier, 0, memory)
            case Moved(key, source, target):
                self._at(key, source, 0, memory)
                self._at(key, target, 0, memory)
            case Evicted(key, tier) | Expired(key, tier):
                if (held := self._held.get(key)) is not None:
                    held.pop(tier, None)
            case Invalidated(key):
                self._held.pop(key, None)

    def _at(self, key: Key, tier: str, size: int, memory: str) -> None:
        if tier == memory:
            return
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = {}
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        held[tier] = size or held.get(tier, 0)

    def of(self, key: Key, tiers: Iterable[str]) -> tuple[str, int]:
        """The first of `tiers` that holds it and bytes there, 0 = not known; "" = none does."""
        held = self._held.get(key, {})
        return next(((tier, held[tier]) for tier in tiers if tier in held), ("", 0))


class Flows:
    """Which key came before, in each session of each realm: bounded, the ones that went on last."""

    def __init__(self, most: int = MOST_FLOWS) -> None:
        self._most = most
        self._last: OrderedDict[Hashable, Key] = OrderedDict()

    def then(self, flow: Hashable, key: Key) -> Key | None:
        """What was used before `key`; None = nothing that is remembered."""
        before = self._last.pop(flow, None)
        self._last[flow] = key
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return before


class Heard:
    """Listens to `cache` from now on, until `close`. One thread drains."""

    def __init__(self, cache: Cache) -> None:
        self._memory, self._events = cache._store.memory, cache.events
        self._stack = ExitStack()
        self._feed = self._stack.enter_context(cache.events.feed(ROOM))
        self._shown = 0
        self._visits: deque[Use] = deque(maxlen=ROOM)
        self._marks: deque[Key] = deque(maxlen=ROOM)
        self._told = False
        self.where = Whereabouts()
        self._memory.reads.hear(self._show)
        self._stack.callback(self._memory.reads.unhear, self._show)

    def _show(self, keys: Sequence[Key]) -> None:
        if not self._told and self._shown < MOST_SHOWN:
            self._shown += len(keys)
            shown: Any = _Shown(tuple(keys))  # nobody else reads this feed
            self._feed.offer(shown)

    def visited(self, key: Key) -> None:
        """A lookup, as it happens."""
        self._told = True
        self._visits.append((key, session()))

    def marked(self, key: Key) -> None:
        """A tracer says that it is hot."""
        self._marks.append(key)

    def drain(self) -> tuple[list[Use], float, list[Key]]:
        """What was used since the last time, in order as far as that is known; how many each stands for; and what
        tracers marked."""
        try:
            self._memory.maintain()  # shows which keys were hit
        except Exception as error:  # noqa: BLE001 - policies may be plug-ins; what the events tell is heard
            self._events.emit(Failed("hotkeys", f"the recency ring was not drained: {error!r}"))
        self._shown = 0
        events = self._feed.drain()
        uses = _emptied(self._visits) if self._told else _in_order(events, self._memory.name)
        for event in events:
            self.where.note(event, self._memory.name)
        marks, weight = _emptied(self._marks), max(1.0, len(uses) / MOST_USES)
        return [one for one in uses[-MOST_USES:] if not isinstance(one[0], VoidKey)], weight, marks

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""
        self._feed.drain()
        self._visits.clear()
        self._marks.clear()

    def close(self) -> None:
        """Hear no more."""
        self._stack.close()


def _in_order(events: Sequence[Event], memory: str) -> list[Use]:
    """Who was missed is stored, and a put looks at the ring: what that shows was used before the miss was told of."""
    uses: list[Use] = []
    missed = 0  # at the end of `uses`
    for event in events:
        found: Any = event
        match found:
            case _Shown(keys):
                uses[len(uses) - missed : len(uses) - missed] = [(key, "") for key in keys]
            case Missed(key):
                uses.append((key, ""))
                missed += 1
                continue
            case Hit(key, tier) if tier != memory:  # those of memory are in the ring as well
                uses.append((key, ""))
            case NearHit(_, stored, tier) if tier != memory:
                uses.append((stored, ""))
            case Stored():
                pass
            case _:
                continue
        missed = 0
    return uses


def _emptied(waiting: deque[T]) -> list[T]:
    return [waiting.popleft() for _ in range(len(waiting))]  # others only append meanwhile
