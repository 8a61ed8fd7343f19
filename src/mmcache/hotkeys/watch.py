"""`HotKeys`: the watcher. It hears what a cache is asked for, and says which keys are hot, with which, for how long."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import structs

from mmcache import forks
from mmcache.hotkeys.graph import MOST_EDGES, MOST_NODES, HotGraph
from mmcache.hotkeys.heard import Flows, Heard
from mmcache.hotkeys.outlets import HotFile, HotSender, Instance, sweep
from mmcache.hotkeys.scores import HotScores
from mmcache.hotkeys.tracking import Happened, Look, Tracker, refresh
from mmcache.hotkeys.view import HotView, whole
from mmcache.hotkeys.viewing import Expects, Scores, Seen, viewed
from mmcache.model.errors import SettingsError, TierClosedError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.visits import Again, Prefetcher, chosen

if TYPE_CHECKING:
    from mmcache.cache import Cache

TICK_SECONDS = 1.0
"""A weight is halved in 138 of them."""
MARKED_HEAT = 100.0
"""Of a key that a tracer marked: it was read more than so often within a second."""
SHARE = 0.05
"""Of a core that looking may take; then it looks less often."""
_AT_ONCE = 128
"""Uses between two times that threads which wait for the interpreter get it."""
_PAUSE = 5e-5
"""Seconds: sleeping for none lets the interpreter go, and has it again before anybody who waits woke up."""
_SWEPT_EVERY = 60.0
"""Seconds."""
_FAILURES = 10
"""In a row; then it watches no more."""


class Marked(Protocol):
    """What a tracer tells: see `tracer.Mark`."""

    @property
    def key(self) -> Key: ...


class HotKeys:
    """Watches `cache` until `close`, or until that closes.

    >>> with Cache(root) as cache, HotKeys(cache) as hot:
    ...     serve(cache)
    ...     hot.view().keys[0].score

    scores: how hot a key is; default: `HotScores`, by decayed uses, and by attention where `scores.attended` is told
    of it. lifetimes: how long a key stays hot. every: seconds between two looks. otlp: base address of a receiver that
    views are sent to as logs; headers: sent with each request; service: who tells. publish: write the view into the
    cache's folder for `mmcache hot`. threaded: look by itself; else `pump` does. then: a prefetcher, or its name, that
    is told what this is told, so that one cache has both: `Cache(prefetch=HotKeys(then="behaviour"))`.

    It hears events and memory's own hits, in the order in which they come; told of visits (as the cache's `prefetch`)
    it knows which session each is of, and joins only what one session used. Keys of two realms are never joined.
    """

    fork_order = 0  # goes on last, when all that it watches does

    def __init__(
        self,
        cache: Cache | None = None,
        *,
        scores: Scores | None = None,
        lifetimes: Expects | None = None,
        every: float = 2.0,
        otlp: str | None = None,
        headers: Mapping[str, str] | None = None,
        service: str = "mmcache",
        publish: bool = True,
        threaded: bool = True,
        then: str | Prefetcher | None = None,
        most_keys: int = MOST_NODES,
        most_edges: int = MOST_EDGES,
    ) -> None:
        """Raises `SettingsError`, `UnknownPluginError`."""
        if isinstance(every, bool) or not (isinstance(every, int | float) and 0.1 <= every <= 60.0):
            raise SettingsError(f"every is a number of seconds from 0.1 to 60, not {every!r}")
        self.lifetimes, self._every, self._service = lifetimes, float(every), whole(str(service))
        self._scores, self._publish, self._threaded = scores, publish, threaded
        self.then = chosen(then)
        """The prefetcher beside it."""
        self._sender = None if otlp is None else HotSender(otlp, headers)
        self._otlp, self._headers = otlp, headers
        self._room = most_keys, most_edges
        self._lock = forks.Lock()
        self._cache: Cache | None = None
        self._heard: Heard | None = None
        self._instance: Instance | None = None
        self._file: HotFile | None = None
        self._thread: threading.Thread | None = None
        self._over, self._closed = threading.Event(), False
        self.failures = 0
        """Looks that failed."""
        self.happened: deque[Happened] = deque(maxlen=256)
        """What became of communities, the last ones."""
        self._begin()
        if cache is not None:
            self.start(cache)

    def _begin(self) -> None:
        self._graph, self._tracker, self._flows = HotGraph(*self._room), Tracker(), Flows()
        self._look = Look(self._graph.communities, [], [], [])
        self._zero: float | None = None
        self._written = self._swept = -math.inf
        self._told_of = ""
        self._view = HotView(0.0, self._service, "", [])

    def start(self, cache: Cache) -> None:
        """Begin; see `visits.Prefetcher`. Raises `SettingsError` the second time."""
        if self._cache is not None:
            raise SettingsError("these hot keys are another cache's, or watch this one already: make new ones")
        self._cache, self._heard, self._instance = cache, Heard(cache), Instance()
        if self._scores is None:
            self._scores = HotScores(tell=cache.attended)
        if self._publish and cache.root is not None:
            self._file = HotFile(cache.root)
        if self.then is not None:
            self.then.start(cache)
        cache.below.closers.append(self.close)
        forks.join(self)
        self._launch()

    @property
    def scores(self) -> Scores:
        """How hot a key is. Raises `SettingsError` before there is a cache."""
        if self._scores is None:
            raise SettingsError("these hot keys have no cache yet")
        return self._scores

    # What it is told, on others' threads --------------------------------------------------------------------------

    def visited(self, key: Key, again: Again | None = None) -> None:
        """See `visits.Prefetcher`."""
        if self._heard is not None:
            self._heard.visited(key)
        if self.then is not None:
            self.then.visited(key, again)

    def marked(self, mark: Marked) -> None:
        """See `tracer.feedback.Hears`: `Marks(cache, hearers=[hot])`."""
        if self._heard is not None:
            self._heard.marked(mark.key)

    # Looking ------------------------------------------------------------------------------------------------------

    def view(self) -> HotView:
        """The last look's."""
        return self._view

    def pump(self, now: float | None = None) -> HotView:
        """Look now. now: Unix seconds, which then count ticks as well; default: the cache's two clocks."""
        with self._lock:
            return self._pump(now)

    def _pump(self, now: float | None) -> HotView:
        cache, heard, instance = self._cache, self._heard, self._instance
        if cache is None or heard is None or instance is None or self._closed:
            return self._view
        began = time.perf_counter()
        moment, at = (cache.clock.monotonic(), cache.clock.wall()) if now is None else (now, now)
        self._zero = moment if self._zero is None else self._zero
        tick = (moment - self._zero) / TICK_SECONDS
        self._take(heard, tick)
        self._look = refresh(self._graph, self._tracker, tick, at)
        self.happened.extend(self._look.events)
        view = viewed(
            self._graph, self._look, tick, at=at, service=self._service, instance=instance.name,
            score=self._score, expect=self._expect, seen=self._seen,
        )  # fmt: skip
        self._view = structs.replace(view, seconds=round(time.perf_counter() - began, 6))
        self._tell(cache, moment)
        return self._view

    def _take(self, heard: Heard, tick: float) -> None:
        uses, weight, marks = heard.drain()
        graph, flows, realm_of = self._graph, self._flows, self._realm
        for number, (key, session) in enumerate(uses, 1):
            if not number % _AT_ONCE:
                time.sleep(_PAUSE)
            realm, owner = realm_of(key)
            graph.use(key, tick, weight, owner)
            before = flows.then((realm, session), key)
            if before is not None:
                graph.follow(before, key, tick, weight, owner)
        for key in marks:
            graph.at_least(key, tick, MARKED_HEAT, realm_of(key)[1])

    def _realm(self, key: Key) -> tuple[Hashable, int]:
        """Tenant and namespace, and a number for the tenant. A scope that is not known is a realm of its own; all of
        them have one owner."""
        assert self._cache is not None
        scope = self._cache.scopes.find(key)
        return (key.scope, 0) if scope is None else ((scope.tenant, scope.namespace), hash(scope.tenant))

    def _score(self, key: Key, heat: float) -> tuple[float, Mapping[str, float]]:
        try:
            value, parts = self.scores.score(key, heat)
            if not all(map(math.isfinite, (value, *parts.values()))):
                raise ValueError(f"a score of {value} from {parts}")
            return float(value), parts
        except Exception as error:  # noqa: BLE001 - scores may be a plug-in
            self._failed("scores", error)
            return math.log2(1.0 + heat), {"heat": heat}

    def _expect(self, key: Key) -> tuple[float, float] | None:
        if self.lifetimes is None:
            return None
        try:
            found = self.lifetimes.expect(key)
            if found is not None and not all(map(math.isfinite, found)):
                raise ValueError(f"a lifetime of {found}")
            return found
        except Exception as error:  # noqa: BLE001 - lifetimes may be a plug-in
            self._failed("lifetimes", error)
            return None

    def _seen(self, key: Key) -> Seen:
        cache, heard = self._cache, self._heard
        assert cache is not None
        scope, here = cache.scopes.find(key), cache.answers.resident(key)
        modality, tenant = ("", "") if scope is None else (scope.signature.modality, scope.tenant)
        if here.frame is not None:
            return Seen(modality, tenant, here.tier, here.size)
        tier, size = ("", 0) if heard is None else heard.where.of(key, [tier.name for tier in cache._store.lower])
        return Seen(modality, tenant, tier, size)

    def _tell(self, cache: Cache, now: float) -> None:
        if 0.0 <= now - self._written < 0.95 * self._every:
            return
        self._written = now
        if self._file is not None and cache.root is not None:
            self._file.write(self._view)
            if not 0.0 <= now - self._swept < _SWEPT_EVERY:
                self._swept = now
                sweep(cache.root)
        if self._sender is not None:
            self._sender.offer(self._view)

    def _failed(self, what: str, error: Exception) -> None:
        """Said once until it is another one."""
        said = f"{what}: {error!r}"
        if self._cache is not None and said != self._told_of:
            self._told_of = said
            self._cache.events.emit(Failed("hotkeys", said))

    # Its thread ---------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        if self._threaded:
            self._thread = threading.Thread(target=self._run, args=[self._over], name="mmcache-hot", daemon=True)
            self._thread.start()

    def _run(self, over: threading.Event) -> None:
        # Not at a lower priority: whoever wants Python's lock would wait for a thread that is not let run.
        wait, failures = self._every, 0
        while not over.wait(wait):
            began = time.thread_time()
            try:
                self.pump()
                failures = 0
            except TierClosedError:
                return
            except Exception as error:  # noqa: BLE001 - a watcher's failure is nobody else's
                self.failures, failures = self.failures + 1, failures + 1
                self._failed("a look", error)
                if failures >= _FAILURES:
                    return
            wait = max(self._every, (time.thread_time() - began) / SHARE)

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """A child watches for itself, from nothing."""
        if not child or self._closed or self._heard is None or self._cache is None:
            return
        self._heard.forget()
        self._begin()
        self._over, self._instance = threading.Event(), Instance()
        if self._file is not None and self._cache.root is not None:
            self._file = HotFile(self._cache.root)
        if self._otlp is not None:
            self._sender = HotSender(self._otlp, self._headers)
        self._launch()

    def close(self) -> None:
        """Watch no more, and take the file away. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._over.set()
        with ExitStack() as ends:
            for end in (self._instance, self._file, self._sender, self._heard, self.then):
                if end is not None:
                    ends.callback(end.close)
            self._heard = None
            if self._thread is not None and self._thread is not threading.current_thread():
                ends.callback(self._thread.join, 10.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
