"""`BehaviourPrefetch`: brings what a visitor will look for next, as others went before (D4).

It is what `Cache(prefetch="behaviour")` starts.

`Planner` decides; this does, in threads of its own. What a request pays is one append. Speculative work begins only
while nobody waits for a computation; where somebody begins to, what is queued waits, and what runs is told to stop:
see `cancelled`. What a real request has joined is never stopped under it.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from mmcache import forks
from mmcache.model.errors import SettingsError
from mmcache.model.event import Failed, Prefetched, Prefetching
from mmcache.model.key import Key
from mmcache.model.void import VoidKey
from mmcache.niceness import check_nice
from mmcache.prefetch.bringing import Bringing, Outcome
from mmcache.prefetch.life import Life, lowered, raised
from mmcache.prefetch.options import BehaviourSettings
from mmcache.prefetch.planning import Move, Planner, Visit
from mmcache.prefetch.remembered import Remembered
from mmcache.prefetch.status import Moved, PrefetchStatus, Publisher, sweep
from mmcache.prefetch.work import Cancelled, Work, cancelled, speculating, speculative
from mmcache.prefetch.worth import wilson
from mmcache.visits import Again, session

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.events import Feed

__all__ = ["BehaviourPrefetch", "BehaviourSettings", "Cancelled", "cancelled"]

RECIPES = 64
"""Visits that wait with their inputs; those behind them wait without, and are brought from lower tiers only."""
AT_ONCE = 32
"""Visits that are looked at between two times that other threads get the interpreter."""
EVENTS = 16_384
QUIET_SECONDS = 1.0
"""After which the thread looks less often."""
QUIET_TICK = 0.2
PUBLISH_SECONDS = 1.0
_numbers = itertools.count()

Told = tuple[Hashable, Key, Again | None, float]


class BehaviourPrefetch:
    """A `visits.Prefetcher`. In a forked child it goes on with what it learned, with threads of its own."""

    fork_order = -1  # it may wait for the memory tier's lock

    def __init__(
        self,
        settings: BehaviourSettings | None = None,
        *,
        threaded: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """threaded: False where somebody calls `pump`. clock: monotonic seconds; default: the cache's."""
        self.settings = settings or BehaviourSettings()
        self.lost = 0
        """Visits that nobody looked at in time."""
        self._visits: deque[Told] = deque(maxlen=self.settings.pending)
        self._recipe_bytes = 0  # of inputs in there, about
        self._over: deque[Key] = deque(maxlen=EVENTS)  # whose computations have ended
        self._threaded, self._sleeping = threaded, threaded
        self._clock: Callable[[], float] = clock or time.monotonic
        self._own_clock = clock is not None
        self._cache: Cache | None = None
        self._closed = False
        self._gate = threading.RLock()
        self._tickets = itertools.count()
        self._running: dict[Key, Work] = {}
        self._remembered = Remembered(self.settings.remembered_bytes)
        self._moves: deque[Moved] = deque(maxlen=32)
        self._busy_at = self._published = float("-inf")
        self._nice = 0
        self._ends = ExitStack()
        self._life = Life()

    def start(self, cache: Cache) -> None:
        """See `Prefetcher`. Raises `SettingsError` where it has a cache already."""
        if self._cache is not None or self._closed:
            raise SettingsError("a prefetcher is for one cache, and one is started already; make another")
        self._cache = cache
        if not self._own_clock:
            self._clock = cache.clock.monotonic
        lower = bool(cache.below.tiers)
        self._planner = Planner(self.settings, lower=lower)
        self._bringing = Bringing(cache.answers, lower)
        self._scopes, self._emit = cache.scopes, cache.events.emit
        self._feed: Feed = self._ends.enter_context(cache.events.feed(EVENTS))
        cache.answers.tell_computed(self._over.append)
        self._ends.callback(cache.answers.tell_computed, None)
        self._since = time.time()
        if self._threaded:
            with suppress(SettingsError):  # it may not be raised again for who joins: then it is not lowered
                check_nice(self.settings.nice)
                self._nice = self.settings.nice
        if cache.root is not None:
            sweep(cache.root)
        self._open()
        forks.join(self)

    def _open(self) -> None:
        assert self._cache is not None
        root = self._cache.root
        self._publisher = None if root is None else Publisher(root, next(_numbers))
        self._life = Life(None if self._publisher is None else self._publisher.path)
        self._finalizer = weakref.finalize(self, self._life.end)
        self._tickets = itertools.count()
        self._sleeping = self._threaded

    # What requests pay ----------------------------------------------------------------------------------------------

    def visited(self, key: Key, again: Again | None = None) -> None:
        """See `Prefetcher`."""
        visits = self._visits
        waiting = len(visits)
        if waiting >= self.settings.pending:
            self.lost += 1
        if again is not None and (waiting >= RECIPES or not self._has_room(again)):
            again = None
        who = speculative() or session() or threading.get_ident()
        visits.append((who, key, again, self._clock()))
        if self._sleeping:
            self._wake()

    def _has_room(self, again: Again) -> bool:
        """Whether its input may be held until somebody looks at the visit."""
        try:
            size = self._recipe_bytes + again.size
        except Exception:  # noqa: BLE001 - another's object may say anything of its size
            return False
        if self._closed or size > self.settings.remembered_bytes:
            return False
        self._recipe_bytes = size
        return True

    def _wake(self) -> None:
        """Start the thread; once."""
        if self._closed or next(self._tickets):
            return
        try:
            self._life.watch(self)
            self._sleeping = False
        except RuntimeError:  # no more threads, or the interpreter is ending: another visit tries again
            self._tickets = itertools.count()

    # What the thread does -------------------------------------------------------------------------------------------

    def pump(self, now: float | None = None) -> int:
        """Do once what the thread does: take in what happened, decide, and begin at most `concurrent` pieces of work;
        without threads they are over when it returns. How many. now: the clock's seconds, where they are known."""
        if self._closed or self._cache is None:
            return 0
        now = self._clock() if now is None else now
        with self._gate:
            self._take_in(now)
            self._move(now)
            begun = self._begin(now)
        for work in begun:
            if self._threaded:
                self._hand(work, now)
            else:
                self.do(work, now)
        if self._publisher is not None and time.monotonic() - self._published >= PUBLISH_SECONDS:
            self._published = time.monotonic()
            self._publisher.publish(self.status())
        return len(begun)

    def turn(self) -> float:
        """`pump`, whatever happens; seconds until the next time."""
        began = time.thread_time()
        try:
            if self.pump() or self._running or self._visits:
                self._busy_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - a watcher's failure is nobody else's
            self._emit(Failed("prefetch", f"looking ahead failed: {type(error).__name__}"))
            return QUIET_SECONDS
        quiet = time.monotonic() - self._busy_at > QUIET_SECONDS
        rest = (time.thread_time() - began) * (1.0 / self.settings.core_share - 1.0)
        return max(QUIET_TICK if quiet else 0.0, self.settings.tick_seconds, rest)

    def _take_in(self, now: float) -> None:
        """Events first: what was evicted before it was asked for was not used."""
        assert self._cache is not None
        over = [self._over.popleft() for _ in range(len(self._over))]  # before the events: see `Demand.heard`
        misses = self._planner.heard(self._feed.drain(), now, over, self._cache.answers.computing)
        visits, self._recipe_bytes = 0, 0
        for number in range(len(self._visits)):
            if not number % AT_ONCE:
                self._breathe()
            try:
                who, key, again, at = self._visits.popleft()
            except IndexError:
                break
            if isinstance(who, Work):  # what is computed speculatively looks things up, too
                self._planner.looks_for(key)
                continue
            scope = self._scopes.find(key)
            if scope is None or isinstance(key, VoidKey):
                continue
            visits += 1
            realm = (scope.tenant, scope.namespace)
            if (work := self._running.get(key)) is not None:
                work.joins((realm, who))
                raised(work)
            if again is not None:
                with suppress(Exception):  # another's object may say anything of its size
                    self._remembered.add(key, again, realm)
            self._planner.visited(Visit(realm, who, key, at), now)
        self._planner.hits(visits - misses)
        if visits:
            self._busy_at = time.monotonic()

    def _move(self, now: float, stop: bool = False) -> None:
        assert self._cache is not None
        moves = self._planner.step(
            now, under_way=len(self._running), held=self._held, realm=self._realm,
            stop=stop, able=self._cache.mode == "on", between=self._breathe,
        )  # fmt: skip
        for move in moves:
            self._told(move)

    def _breathe(self) -> None:
        """Let threads that wait for the interpreter have it: else each waits five milliseconds."""
        if self._threaded:
            time.sleep(0)

    def _told(self, move: Move) -> None:
        was, state = move.transition.was.value, move.transition.state.value
        self._since = time.time()
        self._moves.append(Moved(self._since, was, state, move.reason))
        self._emit(Prefetching(was, state, move.reason))

    def _held(self, key: Key) -> bool:
        return key in self._running or self._bringing.there(key) > 0

    def _realm(self, key: Key) -> Hashable:
        scope = self._scopes.find(key)
        return None if scope is None else (scope.tenant, scope.namespace)

    def _begin(self, now: float) -> list[Work]:
        begun: list[Work] = []
        while (task := self._planner.next(now, len(self._running))) is not None:
            known = self._remembered.get(task.key) is not None
            if not (known or self._bringing.lower):
                continue
            if not self._bringing.lower and not self._planner.budget.may_compute(now):
                self._planner.later(task, now, counted=False)
                continue
            work = self._running[task.key] = Work(task, self._asked, self._planner.ttl(task))
            begun.append(work)
        return begun

    # Speculative work -----------------------------------------------------------------------------------------------

    def _hand(self, work: Work, now: float) -> None:
        try:
            self._life.hand(self, work, self.settings.concurrent)
        except RuntimeError:  # no more threads: another time
            with self._gate:
                self._running.pop(work.task.key, None)
                self._planner.later(work.task, now, counted=False)

    def _asked(self, work: Work) -> bool:
        """Whether `work` is to stop: the prefetcher was closed, or a real request waits for something else."""
        if not work.stop:
            with self._gate:
                now = self._clock()
                self._take_in(now)
                waits = self._planner.should_stop(work.task.key, now)
                work.stop = self._closed or (waits and not work.joined)
        return work.stop

    def _may_compute(self) -> bool:
        with self._gate:
            now = self._clock()
            if not self._planner.budget.may_compute(now):
                return False
            self._planner.budget.computes(now)
            return True

    def do(self, work: Work, now: float | None = None) -> None:
        """Bring one block. Called without the gate: it may take as long as it likes."""
        began = self._clock()
        outcome = Outcome("failed", error=SystemExit())
        try:
            with lowered(work, self._nice if self._threaded else 0), speculating(work):
                again = self._remembered.get(work.task.key)
                outcome = self._bringing.bring(work, again, self._may_compute)
        finally:
            ended = self._clock()
            ended = ended if now is None else max(now, ended)
            with self._gate:
                if not self._closed:
                    self._take_in(ended)  # whoever asked for it before it was there
                self._running.pop(work.task.key, None)
                if not self._running:
                    self._planner.demand.done()
                if not self._closed:
                    self._end(work, outcome, max(0.0, self._clock() - began), ended)

    def _end(self, work: Work, outcome: Outcome, seconds: float, now: float) -> None:
        task, planner = work.task, self._planner
        spent = seconds if outcome.computed else 0.0
        if outcome.kind == "brought":
            planner.brought(task, outcome.size, cost=spent, computed=outcome.computed, joined=work.joined, now=now)
            self._emit(Prefetched(task.key, task.hop, spent, outcome.size))
        elif outcome.kind == "strayed":  # its input holds something else by now
            self._remembered.forget(task.key)
            planner.strayed(outcome.size, spent, now)
        elif outcome.kind == "failed":
            planner.failed(task, outcome.error, spent, now)
        elif outcome.kind == "stopped":
            planner.stopped(task, spent, now)
        elif outcome.kind == "later":
            planner.later(task, now, counted=outcome.computed)
        elif outcome.kind == "nowhere":
            planner.nowhere(task, now)

    # How it is ------------------------------------------------------------------------------------------------------

    def status(self) -> PrefetchStatus:
        """What it knows, does, and was good for."""
        with self._gate:
            if self._cache is None:
                raise SettingsError("this prefetcher has no cache yet: Cache(prefetch=…) starts it")
            now, planner = self._clock(), self._planner
            counts, worth = planner.counts, planner.worth
            settled = counts.used + counts.wasted
            low, high = wilson(counts.used, settled)
            bytes_left, computations_left = planner.budget.left(now)
            return PrefetchStatus(
                state="stopped" if self._closed else planner.controller.state.value,
                reason=planner.reason(now), since=self._since, trust=worth.trust.value,
                paused_seconds=max(0.0, worth.paused_until - now) if worth.trust == "paused" else 0.0,
                sessions=planner.realms.sessions, nodes=planner.realms.nodes, edges=planner.realms.edges,
                remembered=len(self._remembered), remembered_bytes=self._remembered.bytes,
                visits=counts.visits, lost=self.lost, promoted=counts.promoted, computed=counts.computed,
                failed=counts.failed, cancelled=counts.cancelled, used=counts.used, wasted=counts.wasted,
                share_used=counts.used / settled if settled else None, share_low=low, share_high=high,
                share_foreseen=worth.share, bytes=counts.bytes,
                seconds_saved=counts.seconds_saved, seconds_spent=counts.seconds_spent,
                bytes_left=bytes_left, computations_left=computations_left, queued=len(planner.queue),
                under_way=len(self._running), pauses=counts.pauses, last_failure=counts.last_failure,
                moves=list(self._moves),
            )  # fmt: skip

    def close(self) -> None:
        """See `Prefetcher`. What does not ask `cancelled` may end later, and is stored nowhere then."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            if self._cache is not None:
                self._move(self._clock(), stop=True)
                self._planner.queue.clear()
            for work in self._running.values():
                work.stop = True
            self._remembered.clear()
        self._visits.clear()
        self._life.end()
        self._ends.close()

    def before_fork(self) -> None:
        """See `forks.Forkable`."""
        self._gate.acquire()

    def after_fork(self, child: bool) -> None:
        """The child has none of the threads; what they did is done by the parent."""
        if child:
            self._gate = threading.RLock()
            self._running.clear()
            self._over.clear()
            if self._cache is not None:
                self._planner.demand.clear()  # who waits in the parent waits there
            if not self._closed:
                self._finalizer.detach()
                self._open()
        else:
            self._gate.release()
