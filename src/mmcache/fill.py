"""The miss path: one leader computes and stores, everybody else waits for it. Sync and async share every decision."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext
from contextvars import copy_context
from functools import partial
from typing import NoReturn, TypeVar

from mmcache.flight import Flight, Released, SingleFlight, leading
from mmcache.lookup import Lookup, Make
from mmcache.model.errors import UnsupportedValueError
from mmcache.model.event import Failed, Refused, RefuseReason
from mmcache.model.key import Key
from mmcache.observing import Observer
from mmcache.scopes import Scope
from mmcache.settings import FlightSettings
from mmcache.slots import Slots, in_own_thread, lent
from mmcache.stats import Tally
from mmcache.store import Store
from mmcache.tiers.base import Claims

T = TypeVar("T")
_THREADS = 16
"""That claim and store."""
_KEEPING = 8
"""Of them at most that store, so that there are always some to claim."""


class Fill:
    """Computes what is missing, once."""

    def __init__(
        self,
        store: Store,
        flights: SingleFlight,
        claims: Claims | None,
        tally: Tally,
        settings: FlightSettings,
        slots: Slots | None = None,
    ):
        """`slots`: how many may compute at a time; None = no limit."""
        self.store, self.flights, self.claims, self._tally = store, flights, claims, tally
        self.settings, self._slots = settings, slots
        self.observer: Observer | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0

    def pool(self) -> ThreadPoolExecutor:
        """Threads in which nobody waits for a flight, as some do in the loop's own; half as far away as a new one."""
        if self._threads is None or self._process != os.getpid():  # a fork has none of its parent's threads
            self._threads, self._process = ThreadPoolExecutor(_THREADS, "mmcache-claims"), os.getpid()
            self._keeping = threading.Semaphore(_KEEPING)
        return self._threads

    @property
    def busy(self) -> bool:
        """Whether compute slots are limited, and any is taken or waited for."""
        return self._slots is not None and bool(self._slots.taken_now or self._slots.waiting_now)

    # One key --------------------------------------------------------------------------------------------------------

    def run(
        self, key: Key, scope: Scope, compute: Callable[[], object], ttl: float | None, *, slot: bool = True
    ) -> Make:
        """The value of `key`, computed here or by whoever is already at it. Raises what `compute` raises.

        slot: whether it is for somebody who waits, and takes one of the compute slots.
        """
        while True:
            flight, leads = self.flights.join(key, ahead=not slot)
            if leads:
                try:
                    make = self._lead(flight, scope, compute, ttl, slot)
                except Exception as error:
                    self.flights.fail(flight, error)
                    raise
                except BaseException:
                    self.flights.abandon(flight)
                    raise
                self.flights.land(flight, make)
                return make
            followed = self.follow(flight)
            if followed is None:
                continue  # the leader was interrupted: take over
            if followed is ALONE:
                value = self.timed(compute, [key])[0]
                return partial(same, value)
            return followed

    def _lead(
        self, flight: Flight, scope: Scope, compute: Callable[[], object], ttl: float | None, slot: bool = True
    ) -> Make:
        found: list[Make] = []
        for pause in self.claim(flight, found):
            with lent():
                time.sleep(pause)
        if found:
            return found[0]
        with leading(flight), Released(self.claims, flight) as claim:
            value, seconds = self.timed(compute, [flight.key], scope.tenant if slot else None)
            return self.keep(flight, scope, value, seconds, ttl, claim.hand_over())

    async def run_async(
        self, key: Key, scope: Scope, compute: Callable[[], object | Awaitable[object]], ttl: float | None
    ) -> Make:
        """The async twin of `run`. A plain function computes in a thread; the event loop is never blocked."""
        while True:
            flight, leads = self.flights.join(key)
            if leads:
                try:
                    make = await self._lead_async(flight, scope, compute, ttl)
                except Exception as error:
                    self.flights.fail(flight, error)
                    raise
                except BaseException:  # cancelled
                    self.flights.abandon(flight)
                    raise
                self.flights.land(flight, make)
                return make
            followed = await self.follow_async(flight)
            if followed is None:
                continue
            if followed is ALONE:
                value, _ = await self.timed_async(compute, [key])
                return partial(same, value)
            return followed

    async def _lead_async(
        self, flight: Flight, scope: Scope, compute: Callable[[], object | Awaitable[object]], ttl: float | None
    ) -> Make:
        import asyncio

        found: list[Make] = []
        steps = self.claim(flight, found)
        while (pause := await self.claiming(flight, partial(next, steps, None))) is not None:
            with lent():
                await asyncio.sleep(pause)
        if found:
            return found[0]
        with leading(flight), Released(self.claims, flight) as claim:
            value, seconds = await self.timed_async(compute, [flight.key], scope.tenant)
            return await self.keep_async(flight, scope, value, seconds, ttl, claim.hand_over())

    async def claiming(self, flight: Flight, step: Callable[[], T]) -> T:
        """Do something that may claim `flight`, in a thread where anything may be slow. Who is cancelled meanwhile
        gives back what it claims."""
        import asyncio

        if self.claims is None and not self.store.lower:
            return step()
        claimed = asyncio.get_running_loop().run_in_executor(self.pool(), copy_context().run, step)
        try:
            return await asyncio.shield(claimed)
        except asyncio.CancelledError:
            claimed.add_done_callback(lambda _: flight.release())
            raise

    # Many keys ------------------------------------------------------------------------------------------------------

    def run_many(
        self, wanted: Mapping[Key, tuple[Scope, T]], compute: Callable[[Sequence[T]], list[object]], ttl: float | None
    ) -> dict[Key, Make]:
        """Makers of all `wanted`. What nobody is at yet is computed in one call; what others compute is waited for
        only afterwards, so two callers with crossing batches never wait for each other."""
        made: dict[Key, Make] = {}
        while remaining := [key for key in wanted if key not in made]:
            joined = {key: self.flights.join(key) for key in remaining}
            made |= self._lead_many({k: f for k, (f, leads) in joined.items() if leads}, wanted, compute, ttl)
            for key, (flight, leads) in joined.items():
                followed = None if leads else self.follow(flight)
                if followed is ALONE:
                    made[key] = partial(same, self.timed(lambda key=key: compute([wanted[key][1]]), [key])[0][0])  # type: ignore[index, misc]
                elif followed is not None:
                    made[key] = followed
        return made

    def _lead_many(
        self,
        led: dict[Key, Flight],
        wanted: Mapping[Key, tuple[Scope, T]],
        compute: Callable[[Sequence[T]], list[object]],
        ttl: float | None,
    ) -> dict[Key, Make]:
        made: dict[Key, Make] = {}
        try:
            with ExitStack() as ends:
                claims: dict[Key, Released] = {}
                won = [True] * len(led) if self.claims is None else self.claims.acquire_all(list(led))
                for (key, flight), mine_now in zip(led.items(), won, strict=True):
                    ends.enter_context(leading(flight))
                    if mine_now:
                        claims[key] = ends.enter_context(Released(self.claims, flight))
                for key, look in zip(
                    led, self.store.find(list(led), counted=False), strict=True
                ):  # landed since our miss?
                    if look.make is not None:
                        made[key] = look.make
                if mine := [key for key in claims if key not in made]:
                    tenant = wanted[mine[0]][0].tenant
                    values, seconds = self.timed(lambda: compute([wanted[key][1] for key in mine]), mine, tenant)
                    for key, value in zip(mine, values, strict=True):  # type: ignore[call-overload]
                        scope, done = wanted[key][0], claims[key].hand_over()
                        made[key] = self.keep(led[key], scope, value, seconds / len(mine), ttl, done)
            for key, flight in led.items():
                if key not in made:  # another process is at it
                    scope, item = wanted[key]
                    made[key] = self._lead(flight, scope, lambda item=item: compute([item])[0], ttl)  # type: ignore[misc]
        except Exception as error:
            self.end(led, made, partial(self.flights.fail, error=error))
            raise
        except BaseException:
            self.end(led, made, self.flights.abandon)
            raise
        self.end(led, made, self.flights.abandon)
        return made

    def end(self, led: Mapping[Key, Flight], made: Mapping[Key, Make], otherwise: Callable[[Flight], None]) -> None:
        """Land the flights whose values are there, and end the others."""
        for key, flight in led.items():
            if key in made:
                self.flights.land(flight, made[key])
            else:
                otherwise(flight)

    # Steps ----------------------------------------------------------------------------------------------------------

    def claim(self, flight: Flight, found: list[Make]) -> Iterator[float]:
        """Become the only leader of this machine. Yields seconds to sleep; ends with the claim held, or with
        `found` filled because another process stored the value, or (patience over) without either."""
        key, waited, pause = flight.key, 0.0, self.settings.poll_seconds
        while True:
            claimed = self.claims is None or self.claims.acquire(key)
            with Released(self.claims if claimed else None, flight) as held:
                look: Lookup = self.store.find([key], counted=False)[0]  # landed between our miss and now?
                if look.make is not None:
                    found.append(look.make)
                    return
                held.hand_over()
            if claimed or waited >= self.settings.patience_seconds:
                return
            yield pause
            waited += pause
            pause = min(pause * 1.5, 20 * self.settings.poll_seconds)

    def keep(
        self, flight: Flight, scope: Scope, value: object, seconds: float, ttl: float | None, done: Callable[[], None]
    ) -> Make:
        """Store a computed value; whatever fails, the caller gets its value."""
        key = flight.key
        try:
            if flight.doomed:
                done()
                return self.store.freeze(key, scope, value, seconds)[1]
            make = self.store.put(
                key, scope, value, cost=seconds, ttl=ttl, done=done, unless=lambda: flight.doomed, follows=True
            ).make
        except UnsupportedValueError as error:
            self.store.emit(Refused(key, "cache", RefuseReason.UNSUPPORTED, str(error)))
            return partial(same, value)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the caller gets its value
            self.store.emit(Failed("cache", f"not stored: {error!r}", key))
            return partial(same, value)
        self.store.catch_up()
        if flight.doomed:  # invalidated while we stored: that put must not survive, nor what others read of it
            self.store.forget([key])
        return make

    async def keep_async(
        self, flight: Flight, scope: Scope, value: object, seconds: float, ttl: float | None, done: Callable[[], None]
    ) -> Make:
        """The async twin of `keep`: in a thread where there are tiers that may be slow."""
        keep = partial(self.keep, flight, scope, value, seconds, ttl, done)
        return await self.in_pool(keep) if self.store.lower else keep()

    async def in_pool(self, keep: Callable[[], T]) -> T:
        """Store in a thread that is there already: to start one holds the loop up. At most so many at a time, and the
        rest in threads of their own, so that a tier that hangs holds nobody else up."""
        import asyncio

        pool, keeping = self.pool(), self._keeping
        if not keeping.acquire(blocking=False):
            return await in_thread(keep)
        stored = pool.submit(copy_context().run, keep)
        stored.add_done_callback(lambda _: keeping.release())
        return await asyncio.shield(asyncio.wrap_future(stored))  # what has a claim to give back is never left out

    def follow(self, flight: Flight) -> Make | None:
        """Wait for a flight led elsewhere: its maker, None (leader gave up: try again) or `ALONE` (compute)."""
        with self.flights.waiting(flight, blocking=True) as allowed:
            if not allowed:
                return ALONE
            try:
                with lent():
                    return flight.future.result(self.settings.patience_seconds)
            except TimeoutError:
                if flight.future.done():  # the computation itself raised it
                    raise
                return ALONE

    async def follow_async(self, flight: Flight, patience: float | None = None) -> Make | None:
        """The async twin of `follow`. patience: seconds; None = as set."""
        import asyncio

        patience = self.settings.patience_seconds if patience is None else patience
        with self.flights.waiting(flight, blocking=False) as allowed:
            if not allowed:
                return ALONE
            try:
                landed = asyncio.shield(asyncio.wrap_future(flight.future))
                with lent():
                    return await asyncio.wait_for(landed, patience)
            except TimeoutError:
                if flight.future.done():
                    raise
                return ALONE

    def timed(
        self, compute: Callable[[], object], keys: Sequence[Key], tenant: str | None = None
    ) -> tuple[object, float]:
        """Run the model over the inputs of `keys`; its value and the seconds it took. With a `tenant`, in a compute
        slot where they are limited: waiting for one does not count."""
        with self._slot(tenant), self._observed(keys):
            started = time.perf_counter()
            value = compute()
            seconds = time.perf_counter() - started
        self._tally.computed(len(keys), seconds, self._modality(keys))
        return value, seconds

    async def timed_async(
        self, compute: Callable[[], object | Awaitable[object]], keys: Sequence[Key], tenant: str | None = None
    ) -> tuple[object, float]:
        """The async twin of `timed`."""
        async with self._slot_async(tenant):
            with self._observed(keys):
                started = time.perf_counter()
                if inspect.iscoroutinefunction(compute):
                    value = await compute()
                else:
                    value = await in_thread(in_own_thread(compute))
                    if inspect.isawaitable(value):
                        value = await value
                seconds = time.perf_counter() - started
        self._tally.computed(len(keys), seconds, self._modality(keys))
        return value, seconds

    def _modality(self, keys: Sequence[Key]) -> str | None:
        return self.store.modality(keys[0]) if keys else None

    def _observed(self, keys: Sequence[Key]) -> AbstractContextManager[object]:
        return nullcontext() if self.observer is None else self.observer.computing(keys)

    def _slot(self, tenant: str | None) -> AbstractContextManager[None]:
        return nullcontext() if self._slots is None or tenant is None else self._slots.taken(tenant)

    def _slot_async(self, tenant: str | None) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._slots is None or tenant is None else self._slots.taken_async(tenant)


def same(value: object) -> object:
    """A maker's body where one object serves every caller."""
    return value


def ALONE() -> NoReturn:  # noqa: N802 - a marker, never called
    """What `follow` returns when waiting could never end."""
    raise AssertionError("ALONE is a marker")


async def in_thread(compute: Callable[[], T]) -> T:
    """Run `compute` in a thread of its own. Not in the loop's pool: followers that block there would starve it."""
    import asyncio

    future: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(compute))
        except StopIteration as error:  # no asyncio future takes it
            future.set_exception(
                RuntimeError("the computation raised StopIteration").with_traceback(error.__traceback__)
            )
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            future.set_exception(error)

    threading.Thread(target=run, name="mmcache-compute", daemon=True).start()
    return await asyncio.wrap_future(future)
