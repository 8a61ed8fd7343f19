"""`Spans`: OpenTelemetry spans of what a cache does, for a sample of it."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context as Copied
from dataclasses import replace
from typing import TYPE_CHECKING

from opentelemetry import context as contexts

from mmcache import attribution, forks
from mmcache.lookup import Lookup
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.observing import Strategy
from mmcache.telemetry.describing import WEIGHT, Attributes, Describing, Seen, asked
from mmcache.telemetry.following import Following
from mmcache.telemetry.making import Call, Making, Measured
from mmcache.telemetry.memory_hits import MemoryHits
from mmcache.telemetry.parents import INSIDE, LEFT_OUT, ROOT, Parent, place, reader
from mmcache.telemetry.sampling import Allowance, Burst, Draw, Pace, thinned

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from mmcache.cache import Cache
    from mmcache.scopes import Scope

Met = Callable[[Key, attribution.Attribution, float], object]

LOOK_SECONDS = 0.25
"""Between two times that spans are made of what waits."""
QUEUE = 8192
"""Calls that wait."""
SHARES = 64
"""Shares of before that are remembered: what was drawn by one of them is weighed by it."""
_UNRECORDED: AbstractContextManager[object] = nullcontext()


class Spans:
    """An `Observer`. Starts at once; `close` ends it and makes what is pending.

    tracer_provider: None = OpenTelemetry's global one. sample: share of what has no parent that is recorded, 0…1; what
    runs inside a sampled span always is, inside one that is not sampled never. Hits that memory answers by itself
    (`peek`, `get`, `get_or_compute`) are drawn with that share wherever they happen.
    spans_per_second: most of what has no parent; the share sinks until that holds, and weights rise.
    measured: told of each lookup and computation that is recorded; met: of each hit of a sample of those that memory
    answers by itself, who asked, and for how many it stands. Neither raises.
    """

    fork_order = 5

    def __init__(
        self,
        cache: Cache,
        tracer_provider: TracerProvider | None = None,
        sample: float = 0.01,
        *,
        spans_per_second: float = 500.0,
        measured: Measured | None = None,
        met: Met | None = None,
    ) -> None:
        self._cache, self._closed, self._met = cache, False, met
        self._current = reader()
        self._describing = Describing(cache.scopes.find)
        self._making = Making(self._describing, tracer_provider, measured)
        self._following = Following()
        self._pace, self._draw = Pace(sample, spans_per_second), Draw()
        self._random, self._share = self._draw.random, self._pace.share
        self._shares: tuple[tuple[int, float], ...] = ()  # replaced, for others read it
        self._roots, self._lost, self._looked = 0, 0, time.monotonic()
        self._allowance = Allowance(spans_per_second, self._looked)
        self._most = max(2 * Call.MOST, 2 * LOOK_SECONDS * spans_per_second)
        self._burst = Burst(self._most / 4)
        self._waiting: deque[Call] = deque()
        self._hits = MemoryHits(cache.answers.sample_hits)
        self._draining = forks.Lock()
        forks.join(self)
        cache.answers.observe(self)
        self._hits.take(self._pace.every)
        self._start()
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """Spans that were not made, for there were too many at once."""
        return self._lost

    def rebind(self, tracer_provider: TracerProvider | None) -> None:
        """Make spans by another provider from now on."""
        self._making.rebind(tracer_provider)

    # What the cache tells -------------------------------------------------------------------------------------------

    def begin(self, key: Key | None = None) -> int:
        """See `Observer`."""
        context = self._current()
        if context and (where := place(context)) != ROOT:
            return time.time_ns() if where == INSIDE else 0
        if key is not None:
            return time.time_ns() if key in self._following else 0
        return time.time_ns() if self._random() < self._share else 0

    def looked_up(self, keys: Sequence[Key], looks: Sequence[Lookup], began: int, strategy: Strategy) -> None:
        """See `Observer`."""
        try:
            self._looked_up(keys, looks, began, strategy, time.time_ns())
        except Exception as error:  # noqa: BLE001 - no lookup fails for its span
            self.failed(error)

    def _looked_up(
        self, keys: Sequence[Key], looks: Sequence[Lookup], began: int, strategy: Strategy, ended: int
    ) -> None:
        parent, monotonic = self._parent(began), self._cache.clock.monotonic
        seen = [Seen.of(key, look, strategy, monotonic) for key, look in zip(keys, looks, strict=True)]
        call = Call(parent, attribution.current(), seen, strategy, began, ended)
        if parent.span_id:
            self._later(call)
            return
        self._roots += min(len(seen), call.MOST)
        if self._roots > self._most:
            if not (times := self._burst.take(min(len(seen), call.MOST), self._random())):
                return
            parent.weight *= times
        leads = [one.key for one in seen if one.outcome in ("miss", "stale")] if not self._checks() else list(keys)
        if not leads:
            self._later(call)
            return
        self._following.missed(leads, self._making.make(call), time.monotonic())

    def _checks(self) -> bool:
        """Whether hits are computed anew as well."""
        answers = self._cache.answers
        return answers.mode == "shadow" or answers.verify_share > 0.0

    def _later(self, call: Call) -> None:
        if len(self._waiting) < QUEUE:
            self._waiting.append(call)
        else:
            self._lost += len(call.seen)

    def computing(self, keys: Sequence[Key]) -> AbstractContextManager[object]:
        """See `Observer`."""
        try:
            where = place(self._current())
            if where == LEFT_OUT:
                return _UNRECORDED
            parent = (
                self._parent(time.time_ns()) if where == INSIDE else self._following.computing(keys, time.monotonic())
            )
            if parent is None:
                return _UNRECORDED
            told = self._describing.of(keys[0]) if keys else {}
            told |= asked(attribution.current()) | {"cache.count": len(keys), WEIGHT: parent.weight}
            return self._making.computing(parent, told, self.failed)
        except Exception as error:  # noqa: BLE001 - no computation fails for its span
            self.failed(error)
            return _UNRECORDED

    def stored(self, key: Key, scope: Scope, size: int, cost: float, kept: bool, began: int) -> None:
        """See `Observer`."""
        ended = time.time_ns()
        try:
            told = self._describing.key(key, scope)
            told |= {"cache.bytes": size, "cache.cost_ms": cost * 1e3, "cache.stored": kept}
            parent = self._following.stored(key) if place(self._current()) == ROOT else None
            self._end("cache.put", told, parent, began, ended)
        except Exception as error:  # noqa: BLE001 - no put fails for its span
            self.failed(error)

    def invalidated(self, count: int, began: int) -> None:
        """See `Observer`."""
        ended = time.time_ns()
        try:
            self._end("cache.invalidate", {"cache.count": count}, None, began, ended)
        except Exception as error:  # noqa: BLE001 - no invalidation fails for its span
            self.failed(error)

    def _end(self, name: str, told: Attributes, parent: Parent | None, began: int, ended: int) -> None:
        if parent is None:
            parent = self._parent(began)
            self._roots += not parent.span_id
        self._making.one(name, told | asked(attribution.current()), parent, began, ended)

    def _parent(self, began: int) -> Parent:
        share = self._share
        for until, before in self._shares:  # it was drawn by the one of then
            if began < until:
                share = before
                break
        return Parent.of(self._current(), 1.0 / share if share > 0.0 else 1.0)

    def failed(self, error: Exception) -> None:
        """A span was not made."""
        self._lost += 1
        self._cache.events.emit(Failed("telemetry", f"a span was not made: {error!r}"))

    # What is made after the fact ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Make what waits."""
        with self._draining:
            hits = self._hits.drain()
            self._roots += len(hits)
            some, weight = thinned(hits, self._allowance.take(len(hits), time.monotonic()), self._random())
            self._lost += len(hits) - len(some)
            for (key, when, copied), stands_for in some:
                self._guarded(self._hit, key, when, copied, stands_for * weight)
            for _ in range(len(self._waiting)):
                self._guarded(self._making.make, self._waiting.popleft())

    def _aim(self) -> None:
        """Decide anew how many are drawn."""
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        roots, self._roots = self._roots, 0
        self._burst.over()
        share = self._pace.after(roots, seconds)
        if share != self._share:
            self._shares = (*self._shares[1 - SHARES :], (time.time_ns(), self._share))
            self._share = share
        with self._draining:
            if not self._closed and self._hits.far_from(self._pace.every):
                self._hits.take(self._pace.every)

    def _hit(self, key: Key, when: int, copied: Copied, stands_for: float) -> None:
        """Where it stood is in the context that it happened in."""
        by = copied.run(attribution.current)
        if self._met is not None:
            self._met(key, by, stands_for)
        context = copied.run(contexts.get_current)
        if (where := place(context)) == LEFT_OUT:
            return
        parent = Parent.of(context, stands_for)
        if where == INSIDE:
            parent = replace(parent, weight=parent.weight * stands_for)
        held = self._cache.answers.resident(key)  # it may have gone meanwhile, and was a hit
        seen = Seen.of(key, held, "exact", self._cache.clock.monotonic)
        self._making.make(Call(parent, by, [seen], "exact", when, when))

    def _guarded(self, make: Callable[..., object], *what: object) -> None:
        try:
            make(*what)
        except Exception as error:  # noqa: BLE001 - what waits behind it is made all the same
            self.failed(error)

    def flush(self) -> None:
        """Return when what was recorded so far is with the provider's processors."""
        self.look()

    # Life -----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(self._stop,), name="mmcache-spans", daemon=True)
        self.thread.start()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self.look()
            self._aim()

    def close(self) -> None:
        """Observe no more; make what is pending. Idempotent. The provider is its owner's to close."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._stop.set()
        if self._cache.answers.observer is self:
            self._cache.answers.observe(None)
        with self._draining:  # whose thread may be about to take others
            self._hits.take(0)
        self.look()

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """What waits is the parent's to make, and so is what follows from its lookups."""
        if not child:
            return
        self._waiting.clear()
        self._following.forget()
        self._hits.forget()
        self._draw.renew()
        self._random, self._roots, self._lost, self._looked = self._draw.random, 0, 0, time.monotonic()
        if not self._closed:
            self._start()
