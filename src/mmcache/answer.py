"""`Answers`: every lookup that may end in a computation: counted, logged, checked where a check is due."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

from mmcache.codecs.structure import Structures
from mmcache.compare import difference
from mmcache.events import Events
from mmcache.fill import Fill, in_thread, same
from mmcache.lookup import SWITCHED_OFF, TOO_OLD, Lookup, bypassed, void
from mmcache.many import ManyFill
from mmcache.model.errors import MMCacheError
from mmcache.model.event import Differed, Failed, Hit, Missed, MissReason, NearHit
from mmcache.model.key import WHOLE, Key
from mmcache.model.void import VoidKey
from mmcache.modes import Mode
from mmcache.observing import Observer, Strategy
from mmcache.revalidate import Revalidation
from mmcache.scopes import Scope, Scopes
from mmcache.stats import Tally
from mmcache.store import Store
from mmcache.tiers.hit_index import Sink
from mmcache.visits import Again, Prefetcher


class Wanted(Protocol):
    """One of many inputs: see `encoder.Request`."""

    @property
    def key(self) -> Key: ...
    @property
    def scope(self) -> Scope: ...


W = TypeVar("W", bound=Wanted)


class Answers:
    """Looks up, fills what is missing, and recomputes hits where shadow mode or sampling asks for it."""

    def __init__(
        self,
        store: Store,
        fill: Fill,
        revalidation: Revalidation,
        scopes: Scopes,
        tally: Tally,
        events: Events,
        structures: Structures,
        verify_share: float,
    ) -> None:
        self.mode: Mode = "on"
        self._store, self._fill, self._scopes, self._tally = store, fill, scopes, tally
        self._revalidation, self._many = revalidation, ManyFill(fill)
        self._events, self._structures, self.verify_share = events, structures, verify_share
        self.observer: Observer | None = None
        self.prefetcher: Prefetcher | None = None

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` of every lookup that comes here, every computation, put and invalidation from now on.

        Hits that memory answers by itself (`peek`, `get`, `get_or_compute`) never come here: see `sample_hits`.
        """
        self.observer = self._fill.observer = self._store.observer = observer

    def sample_hits(self, every: int, sink: Sink | None) -> None:
        """Tell `sink` of one in `every` hits that memory answers by itself; None = of none. See `HitIndex.sample`."""
        self._store.memory.sample(every, sink)

    def look_up(
        self,
        keys: Sequence[Key],
        *,
        settled: bool = False,
        strategy: Strategy = "exact",
        again: Sequence[Again | None] = (),
    ) -> list[Lookup]:
        """Look keys up in all tiers, a batch a tier; counted, and logged as events.

        `settled`: each goes to `settle`, so that what is over but may be served while it is revalidated counts too.
        `again`: for each key, how a prefetcher may compute it another time.
        """
        observer = self.observer
        began = 0 if observer is None else observer.begin()
        self._store.memory.check_open()
        if self.mode == "off":
            looks = [SWITCHED_OFF] * len(keys)
        else:
            looks = self._store.find(keys, stale=settled and self.mode == "on")
            looks = [void(key) or look for key, look in zip(keys, looks, strict=True)]
        for key, look, repeat in zip_longest(keys, looks, again):
            self.count(key, look, again=repeat)
        if observer is not None and began:
            observer.looked_up(keys, looks, began, strategy)
        return looks

    @property
    def computing(self) -> int:
        """Keys that are computed in this process for somebody who waits; not those that doors compute by themselves."""
        return self._fill.flights.under_way

    def tell_computed(self, told: Callable[[Key], object] | None) -> None:
        """Call `told` with each key whose `computing` is over, also where nothing was stored. It appends, no more."""
        self._fill.flights.told = told

    def speculate(self, key: Key, scope: Scope, compute: Callable[[], Any], ttl: float | None) -> int:
        """Bring `key` into memory, from a lower tier or by computing, for nobody who waits: neither counted as a lookup
        nor a use, and not while compute slots are taken. Returns bytes; 0 = it was there, or it was no moment for it.

        Raises what `compute` raises.
        """
        if self.mode != "on" or isinstance(key, VoidKey):
            return 0
        look = self._store.find([key], counted=False)[0]  # promotes what a lower tier holds
        if look.make is None or look.stale:
            if self._fill.busy:
                return 0
            self._fill.run(key, scope, compute, ttl, slot=False)
        elif look.tier == self._store.memory.name:
            return 0
        there = self.resident(key)
        return 0 if there.frame is None else max(1, there.size)

    def heat(self, keys: Sequence[Key]) -> None:
        """Bring keys that a tracer found hot into memory where they are not, and tell its policy; counts nothing."""
        self._store.find(keys, counted=False)
        self._store.memory.refresh(keys)

    def check_open(self) -> None:
        """Raises `TierClosedError`."""
        self._store.memory.check_open()

    def find(self, key: Key, *, settled: bool = False) -> Lookup:
        """Like `look_up` of one key, for who sees to it that the outcome is counted: `count` or `count_near`."""
        observer = self.observer
        began = 0 if observer is None else observer.begin()
        look = self._store.find([key], stale=settled and self.mode == "on")[0]
        return replace(look, began=began) if began else look

    def resident(self, key: Key) -> Lookup:
        """A hit in memory, as far as that still holds it: neither counted nor a use. It makes nothing to be served."""
        found, name = self._store.memory.look(key), self._store.memory.name
        if isinstance(found, MissReason):
            return Lookup(nothing, name)
        return Lookup(nothing, name, frame=found.frame, deadline=found.deadline)

    def read(self, key: Key) -> Lookup:
        """What is stored, to be compared: neither counted nor a use."""
        return self._store.find([key], counted=False)[0]

    @property
    def moment(self) -> int:
        """Now, for `changed`."""
        return self._store.changes.now

    def changed(self, key: Key, moment: int) -> bool:
        """Whether `key` may have been stored or dropped since that moment, as far as this process has heard."""
        self._store.catch_up()
        return self._store.changes.since(key, moment)

    def keep(self, key: Key, value: Any, *, cost: float, ttl: float | None) -> None:
        """Store what every process finds out alike, so that nobody need be told."""
        if self.mode == "on" and not isinstance(key, VoidKey):
            self._store.put(key, self._scopes.require(key), value, cost=cost, ttl=ttl, done=nothing)

    def count(self, key: Key, look: Lookup, strategy: Strategy = "exact", *, again: Again | None = None) -> Lookup:
        """Count and log the outcome of a lookup."""
        if self.prefetcher is not None and look.reason is not MissReason.BYPASSED:
            self.prefetcher.visited(key, again)
        modality, tenant = self._whose(key)
        way = _way(key, look, strategy)
        if look.make is None:
            self._tally.miss(look.reason, modality, tenant=tenant, strategy=way)
            self._events.emit(Missed(key, look.reason, look.detail))
        else:
            self._tally.hit(look.tier, modality, look.saved, tenant=tenant, strategy=way, size=look.size)
            self._events.emit(Hit(key, look.tier))
        if look.began and self.observer is not None:
            self.observer.looked_up([key], [look], look.began, strategy)
        return look

    def count_miss(self, keys: Sequence[Key], look: Lookup, strategy: Strategy = "exact") -> None:
        """Count and log `keys`, none of which was looked for."""
        observer = self.observer
        began = 0 if observer is None else observer.begin()
        for key in keys:
            self.count(key, look)
        if observer is not None and began:
            observer.looked_up(keys, [look] * len(keys), began, strategy)

    def count_near(self, key: Key, stored: Key, look: Lookup, confidence: float, began: int = 0) -> None:
        """The same for `key`, which was answered with what is stored for another. began: of its own `Lookup`."""
        if look.tier == self._store.memory.name:
            self._store.memory.used(stored)
        modality, tenant = self._whose(key)
        self._tally.hit(look.tier, modality, look.saved, tenant=tenant, strategy="near", size=look.size)
        self._events.emit(NearHit(key, stored, look.tier, confidence))
        if began and self.observer is not None:
            self.observer.looked_up([key], [look], began, "near")

    def _whose(self, key: Key) -> tuple[str | None, str]:
        """Modality and tenant."""
        scope = self._scopes.find(key)
        return (None, "") if scope is None else (scope.signature.modality, scope.tenant)

    def answer(
        self, key: Key, compute: Callable[[], Any], *, ttl: float | None = None, bypass: bool | str = False
    ) -> Any:
        """The stored value, or `compute()`'s, stored. bypass: whether nothing is to be looked up, or why."""
        if bypass:
            self.count_miss([key], bypassed(bypass))
            return self._fill.timed(compute, [key], self._tenant(key))[0]
        return self.settle(key, self.look_up([key], settled=True)[0], compute, ttl=ttl)

    def settle(self, key: Key, look: Lookup, compute: Callable[[], Any], *, ttl: float | None = None) -> Any:
        """Finish a lookup: hand out the hit (recomputing it where a check is due), or fill the miss."""
        if self.mode == "off" or isinstance(key, VoidKey):
            return self._fill.timed(compute, [key], self._tenant(key))[0]
        if look.make is None:
            return self._fill.run(key, self._scopes.require(key), compute, ttl)()
        if self.mode == "on" and self._revalidation.due(look):
            return self._revalidation.run(key, self._scopes.require(key), look, compute, ttl)()
        if not self._check_due():
            return look.make()
        then = self._store.changes.now
        return self._checked(key, look, self._fill.timed(compute, [key], self._tenant(key))[0], ttl, then)

    async def answer_async(
        self,
        key: Key,
        compute: Callable[[], Any | Awaitable[Any]],
        *,
        ttl: float | None = None,
        bypass: bool = False,
        again: Again | None = None,
    ) -> Any:
        """The async twin of `answer`. again: see `look_up`."""
        if bypass or self.mode == "off":
            self.count_miss([key], bypassed(bypass))
            return (await self._fill.timed_async(compute, [key], self._tenant(key)))[0]
        return await self.settle_async(key, await self._look_up_async(key, again), compute, ttl=ttl)

    async def settle_async(
        self, key: Key, look: Lookup, compute: Callable[[], Any | Awaitable[Any]], *, ttl: float | None = None
    ) -> Any:
        """The async twin of `settle`."""
        if self.mode == "off" or isinstance(key, VoidKey):
            return (await self._fill.timed_async(compute, [key], self._tenant(key)))[0]
        if look.make is None:
            return (await self._fill.run_async(key, self._scopes.require(key), compute, ttl))()
        if self.mode == "on" and self._revalidation.due(look):
            return (await self._revalidation.run_async(key, self._scopes.require(key), look, compute, ttl))()
        if not self._check_due():
            return look.make()
        then = self._store.changes.now
        value, _ = await self._fill.timed_async(compute, [key], self._tenant(key))
        return await in_thread(partial(self._checked, key, look, value, ttl, then))

    async def _look_up_async(self, key: Key, again: Again | None) -> Lookup:
        """Memory in place; what may block, in a thread."""
        import asyncio

        observer = self.observer
        began = 0 if observer is None else observer.begin()
        self._store.memory.check_open()
        near = self._store.find_near([key])[0]
        if near.make is not None:
            return self.count(key, replace(near, began=began) if began else near, again=again)
        return (await asyncio.to_thread(self.look_up, [key], settled=True, again=[again]))[0]

    def answer_many(
        self,
        requests: Sequence[W],
        compute: Callable[[Sequence[W]], list[Any]],
        *,
        ttl: float | None = None,
        bypass: bool = False,
        again: Sequence[Again | None] = (),
    ) -> list[Any]:
        """Values in the order of `requests`; `compute` gets the missing ones, each key once, in one call. again: see
        `look_up`."""
        if bypass or self.mode == "off":
            if not requests:
                return []
            keys = [request.key for request in requests]
            self.count_miss(keys, bypassed(bypass))
            return self._fill.timed(lambda: compute(requests), keys, self._tenant(keys[0]))[0]  # type: ignore[return-value]
        looks = self.look_up([request.key for request in requests], again=again)
        makes = {r.key: look.make for r, look in zip(requests, looks, strict=True) if look.make is not None}
        missing = {r.key: r for r in requests if r.key not in makes}
        due = {r.key: r for r in requests if r.key in makes and self._check_due()}
        then = self._store.changes.now
        if due:
            tenant = self._tenant(next(iter(due)))
            values = self._fill.timed(lambda: compute(list(due.values())), list(due), tenant)[0]
            for (key, _), value in zip(due.items(), values, strict=True):  # type: ignore[call-overload]
                look = next(one for r, one in zip(requests, looks, strict=True) if r.key == key)
                makes[key] = partial(same, self._checked(key, look, value, ttl, then))
        makes |= self._fill.run_many({key: (r.scope, r) for key, r in missing.items()}, compute, ttl)
        return [makes[request.key]() for request in requests]

    async def look_up_many_async(self, keys: Sequence[Key], *, since: float | None = None) -> list[Lookup]:
        """Look keys up: memory in place, the rest in a thread. Counted, but for those of one key after another.

        `since`: what was stored before (Unix seconds) has expired for this caller.
        """
        import asyncio

        observer = self.observer
        began = 0 if observer is None else observer.begin()
        self._store.memory.check_open()
        if self.mode == "off":
            self.count_miss(keys, SWITCHED_OFF)
            return [SWITCHED_OFF] * len(keys)
        near = self._store.find_near(keys, counted=False)  # a use only where it is new enough
        looks = list(near)
        if self._store.lower and (below := [i for i, look in enumerate(looks) if look.make is None]):
            found = await asyncio.to_thread(self._store.find, [keys[i] for i in below])
            for i, look in zip(below, found, strict=True):
                looks[i] = look
        else:
            looks = [self._store.name_miss(key, look) for key, look in zip(keys, looks, strict=True)]
        looks = [TOO_OLD if look.make is not None and not look.since(since) else look for look in looks]
        for key, look, held in zip(keys, looks, near, strict=True):
            if look is held and look.make is not None:
                self._store.memory.used(key)
        looks = [self.count(key, void(key) or look) for key, look in zip(keys, looks, strict=True)]
        if observer is not None and began:
            observer.looked_up(keys, looks, began, "exact")
        return looks

    async def settle_many_async(
        self,
        requests: Mapping[Key, W],
        compute: Callable[[Sequence[W]], Awaitable[list[Any]]],
        *,
        ttl: float | None = None,
        since: float | None = None,
    ) -> dict[Key, Any]:
        """Fill misses, all that nobody else is at in one call of `compute`. Raises what it raises."""
        makes = await self._many.run({key: (r.scope, r) for key, r in requests.items()}, compute, ttl, since)
        return {key: make() for key, make in makes.items()}

    def check_due(self) -> bool:
        """Whether a hit is to be recomputed and compared, drawn by chance."""
        return self._check_due()

    def _tenant(self, key: Key) -> str | None:
        """Whose compute slot a recomputation takes; None = none: switched off, nothing of the cache may delay."""
        scope = self._scopes.find(key)
        return None if self.mode == "off" or scope is None else scope.tenant

    def _check_due(self) -> bool:
        return self.mode == "shadow" or (self.verify_share > 0.0 and random.random() < self.verify_share)

    def _checked(self, key: Key, look: Lookup, value: Any, ttl: float | None, then: int) -> Any:
        """Compare a hit with its recomputed value; where they differ, the new one is stored. Returns the new one.

        Nothing is stored when the key was invalidated or put since `then`. No failure reaches the caller.
        """
        assert look.make is not None
        scope = self._scopes.require(key)
        try:
            fresh = self._store.freeze(key, scope, value, look.saved)[1]()  # same chain: lossy ones compare equal too
            found = difference(look.make(), fresh, self._structures)
            self._tally.compared(found.equal)
            if not found.equal:
                self._events.emit(Differed(key, found.largest))
                if not self._store.changes.since(key, then):
                    self._store.put(key, scope, value, cost=look.saved, ttl=ttl, done=nothing, follows=True)
        except MMCacheError as error:
            self._events.emit(Failed("check", f"could not compare: {error}", key))
            return value
        return value if self.mode == "shadow" else fresh


def _way(key: Key, look: Lookup, strategy: Strategy) -> str:
    """How it was looked for, as metrics and spans call it."""
    if strategy != "exact":
        return strategy
    if look.stale:
        return "stale"
    return strategy if key.endswith(WHOLE) else "region"


def nothing() -> None:
    """What to do when a write is readable, where nobody waits for it."""
