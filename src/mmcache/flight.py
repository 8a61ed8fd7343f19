"""Single flight: a thousand callers that miss one key cause one computation.

In a process, threads and asyncio tasks share one `Flight`. Across processes a claim (an advisory lock that the
kernel frees when its holder dies) elects the leader; others watch the shared tier. A caller never waits for itself:
recursion and cycles between flights are found before waiting, and such a caller computes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from mmcache import forks
from mmcache.model.key import Key
from mmcache.tiers.base import Claims


@dataclass(eq=False)
class Flight:
    """One computation under way. Its future gives a maker of fresh values, or None when the leader gave up."""

    key: Key
    thread: int = field(default_factory=threading.get_ident)
    future: Future[Callable[[], object] | None] = field(default_factory=Future)
    waits_for: set[Flight] = field(default_factory=set)
    """Flights that this one's computation is waiting for."""
    release: Callable[[], None] = lambda: None
    """Gives the claim of other processes back; idempotent."""
    doomed: bool = False
    """Invalidated meanwhile: its result is returned but not stored."""
    ahead: bool = False
    """Begun for nobody who waits, or within what was. Where it fails, whoever joined it computes."""


_led: ContextVar[tuple[Flight, ...]] = ContextVar("mmcache_led", default=())
"""Flights that the running code computes for. A context variable: asyncio's tasks and `asyncio.to_thread` inherit it.
Threads of a plain pool do not: who waits there for the key that it computes waits until its patience ends."""


@contextmanager
def leading(flight: Flight) -> Iterator[None]:
    """What runs inside computes for `flight`."""
    token = _led.set((*_led.get(), flight))
    try:
        yield
    finally:
        _led.reset(token)


class SingleFlight:
    """The flights of this process."""

    fork_order = 0

    def __init__(self) -> None:
        self._reset()
        self.told: Callable[[Key], object] | None = None
        """Called with the key of each flight that is over and that somebody waited for, however it ended."""
        forks.join(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Key, Flight] = {}

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """A child has none of its parent's threads, so none of its flights."""
        if child:
            self._reset()

    @property
    def under_way(self) -> int:
        """Computations under way, but for those that are `ahead`."""
        return sum(not flight.ahead for flight in list(self._flights.values()))

    def join(self, key: Key, ahead: bool = False) -> tuple[Flight, bool]:
        """The flight of `key`, and whether the caller leads it (and must `land`, `fail` or `abandon` it). ahead: see
        `Flight`."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            ahead = ahead or any(led.ahead for led in _led.get())
            flight = self._flights[key] = Flight(key, ahead=ahead)
            return flight, True

    def land(self, flight: Flight, make: Callable[[], object]) -> None:
        """The value is there: each follower calls `make`."""
        self._end(flight)
        flight.future.set_result(make)

    def fail(self, flight: Flight, error: Exception) -> None:
        """The computation raised: followers raise the same. Nothing is cached."""
        if flight.ahead:  # they did not ask for this attempt, and theirs may fare better
            return self.abandon(flight)
        self._end(flight)
        if isinstance(error, StopIteration):  # no future takes it
            error = RuntimeError("the computation raised StopIteration").with_traceback(error.__traceback__)
        flight.future.set_exception(error)

    def abandon(self, flight: Flight) -> None:
        """The leader was cancelled or interrupted: a follower takes over."""
        self._end(flight)
        flight.future.set_result(None)

    def _end(self, flight: Flight) -> None:
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
        if self.told is not None and not flight.ahead:
            self.told(flight.key)

    def doom(self, keys: Iterable[Key] | None) -> None:
        """`keys` (None = all) were invalidated: flights under way must not store what they compute."""
        with self._lock:
            for key in list(self._flights) if keys is None else keys:
                flight = self._flights.pop(key, None)  # later callers start afresh
                if flight is not None:
                    flight.doomed = True
                    flight.release()  # or who computes it afresh, perhaps inside that very flight, would wait for it

    @contextmanager
    def waiting(self, flight: Flight, *, blocking: bool) -> Iterator[bool]:
        """Inside, the caller may wait for `flight` if told True; False = that could never end: compute alone.

        `blocking` says that waiting would stop this whole thread (and with it any task that runs on it).
        """
        mine = _led.get()
        with self._lock:
            ahead, seen = [flight], {flight}
            while ahead:
                for other in ahead.pop().waits_for - seen:
                    seen.add(other)
                    ahead.append(other)
            allowed = seen.isdisjoint(mine)
            if blocking and flight.thread == threading.get_ident() and not flight.future.done():
                allowed = False
            if allowed:
                for led in mine:
                    led.waits_for.add(flight)
        try:
            yield allowed
        finally:
            if allowed:
                with self._lock:
                    for led in mine:
                        led.waits_for.discard(flight)


class Released:
    """Releases a flight's claim at the end of the block, unless handing over passed that duty on; once."""

    def __init__(self, claims: Claims | None, flight: Flight) -> None:
        self._claims, self._flight, self._handed_over = claims, flight, False

    def hand_over(self) -> Callable[[], None]:
        """What releases it later."""
        self._handed_over = True
        return self._release

    def _release(self) -> None:
        claims, self._claims = self._claims, None
        if claims is not None:
            claims.release(self._flight.key)

    def __enter__(self) -> Released:
        self._flight.release = self._release
        return self

    def __exit__(self, *error: object) -> None:
        if not self._handed_over:
            self._release()
