"""What happened, for those who watch: a bounded log and bounded feeds. Watchers pull; they never run in a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmcache.ledger import Labels, Ledger
from mmcache.model.event import Event, Evicted, Expired, Failed, Invalidated, Refused

_COUNTED: dict[type, Callable[[Any], Labels]] = {
    Evicted: lambda event: ("evicted", event.tier, event.reason.value),
    Refused: lambda event: ("refused", event.tier, event.reason.value),
    Expired: lambda event: ("expired", event.tier, "deadline"),
    Invalidated: lambda event: ("invalidated", "", ""),
    Failed: lambda event: ("failed", event.where, ""),
}
"""What happened, where, and why: of what nobody counts elsewhere."""


class Feed:
    """One watcher's queue. When it is not drained in time the oldest events are lost, and counted."""

    def __init__(self, capacity: int) -> None:
        self._queue: deque[Event] = deque(maxlen=capacity)

    def offer(self, event: Event) -> None:
        """Append; never blocks."""
        self._queue.append(event)

    def drain(self) -> list[Event]:
        """All events since the last drain, oldest first."""
        events = []
        while self._queue:
            try:
                events.append(self._queue.popleft())
            except IndexError:
                break
        return events


class Events:
    """The cache's event stream."""

    def __init__(self, recent: int = 1024) -> None:
        self._recent: deque[Event] = deque(maxlen=recent)
        self._feeds: tuple[Feed, ...] = ()
        self.counts = Ledger([1])
        """(what, where, why) → how often: exact, whatever watchers miss. `evicted`, `refused`, `expired`,
        `invalidated`, `failed`."""

    def emit(self, event: Event) -> None:
        """Called by the cache and its tiers."""
        self._recent.append(event)
        if (labels := _COUNTED.get(type(event))) is not None:
            self.counts.add(labels(event))
        for feed in self._feeds:
            feed.offer(event)

    def recent(self, count: int | None = None) -> list[Event]:
        """The last events, oldest first. Hits served by `peek` and `get` from memory are counted, not logged."""
        events = list(self._recent)
        return events if count is None else events[-count:]

    @contextmanager
    def feed(self, capacity: int = 65536) -> Iterator[Feed]:
        """`with cache.events.feed() as feed: … feed.drain()`."""
        feed = Feed(capacity)
        self._feeds = (*self._feeds, feed)
        try:
            yield feed
        finally:
            self._feeds = tuple(other for other in self._feeds if other is not feed)
