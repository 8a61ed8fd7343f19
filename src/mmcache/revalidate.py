"""Refreshing what is still there: one caller computes anew, near the end or just after it; all others are served.

Early, by chance that grows as the deadline nears (Vattani et al., "Optimal probabilistic cache stampede prevention",
VLDB 2015); after the deadline, for as long as `stale_while_revalidate` says (RFC 5861).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mmcache.fill import Fill
from mmcache.flight import Flight, Released, SingleFlight, leading
from mmcache.keeping import Keeping
from mmcache.lookup import Lookup, Make
from mmcache.model.clock import Clock
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.scopes import Scope
from mmcache.store import Store
from mmcache.tiers.base import Claims


@dataclass
class _Refresh:
    """One attempt. `make` gives what the caller gets."""

    make: Make
    flight: Flight | None = None
    """What this caller leads; None = another caller is at it."""
    new: bool = False
    """`make` gives a newer value than the one that was looked up."""


class Revalidation:
    """Decides who refreshes, and does it. Whatever fails, the caller gets the value that is there, while it may be."""

    def __init__(
        self, store: Store, fill: Fill, flights: SingleFlight, claims: Claims | None, keeping: Keeping, clock: Clock
    ) -> None:
        self._store, self._fill, self._flights, self._claims = store, fill, flights, claims
        self._keeping, self._clock = keeping, clock

    def due(self, look: Lookup) -> bool:
        """Whether this caller should try to refresh what it found."""
        return look.stale or self._keeping.due(look.deadline, look.saved, self._clock.monotonic())

    def run(self, key: Key, scope: Scope, look: Lookup, compute: Callable[[], object], ttl: float | None) -> Make:
        """The maker of a new value where this caller is the one to compute it, else of the one that is there."""
        with self._attempt(key, look) as attempt:
            if (flight := attempt.flight) is not None and (done := self._claim(key, look, attempt)) is not None:
                with _given_back(done):
                    value, seconds = self._fill.timed(compute, [key], scope.tenant)
                attempt.make, attempt.new = self._fill.keep(flight, scope, value, seconds, ttl, done), True
        return attempt.make

    async def run_async(
        self, key: Key, scope: Scope, look: Lookup, compute: Callable[[], object | Awaitable[object]], ttl: float | None
    ) -> Make:
        """The async twin of `run`."""
        with self._attempt(key, look) as attempt:
            if (flight := attempt.flight) is None:
                return attempt.make
            done = await self._fill.claiming(flight, lambda: self._claim(key, look, attempt))
            if done is not None:
                with _given_back(done):
                    value, seconds = await self._fill.timed_async(compute, [key], scope.tenant)
                attempt.make = await self._fill.keep_async(flight, scope, value, seconds, ttl, done)
                attempt.new = True
        return attempt.make

    @contextmanager
    def _attempt(self, key: Key, look: Lookup) -> Iterator[_Refresh]:
        assert look.make is not None
        attempt = _Refresh(look.make)
        flight, leads = self._flights.join(key)
        if not leads:
            yield attempt
            return
        attempt.flight = flight
        try:
            with leading(flight):
                yield attempt
        except Exception as error:
            self._flights.fail(flight, error)
            if flight.doomed or self._gone(look):
                raise
            self._store.emit(Failed("refresh", f"the old value is served: {error!r}", key))
            return
        except BaseException:
            self._flights.abandon(flight)
            raise
        if attempt.new:
            self._flights.land(flight, attempt.make)
        else:  # who came meanwhile may not be served what is there: since the lookup it may have been invalidated
            self._flights.abandon(flight)

    def _claim(self, key: Key, look: Lookup, attempt: _Refresh) -> Callable[[], None] | None:
        """Gives the claim back under which this caller computes; None = another process is at it, or has done it."""
        assert attempt.flight is not None
        claimed = self._claims is None or self._claims.acquire(key)
        with Released(self._claims if claimed else None, attempt.flight) as claim:
            return claim.hand_over() if claimed and not self._renewed(key, look, attempt) else None

    def _gone(self, look: Lookup) -> bool:
        """Whether what was found may not even be served stale any more: computing, and failing, may take long."""
        return look.deadline is not None and look.deadline + self._keeping.grace_seconds <= self._clock.monotonic()

    def _renewed(self, key: Key, look: Lookup, attempt: _Refresh) -> bool:
        """Whether somebody, maybe another process, stored a newer one since the lookup: what the caller gets then."""
        for found in self._alive(key):
            if found.make is not None and found.created != look.created:
                attempt.make, attempt.new = found.make, True
                return True
        return False

    def _alive(self, key: Key) -> Iterator[Lookup]:
        yield from self._store.find_near([key], counted=False)
        for tier in self._store.lower:
            yield from self._store.find_below(tier, [key])


@contextmanager
def _given_back(claim: Callable[[], None]) -> Iterator[None]:
    """What is raised inside gives the claim back."""
    try:
        yield
    except BaseException:
        claim()
        raise
