"""Visitors, one encoder and a cache with a prefetcher, in virtual time: what the table `prefetch` replays.

The cache, its policy, the encoder's wrapper and the prefetcher are the product's own. Simulated is how long computing
takes: one encoder does one block after another, real requests in the order in which they come. Speculative work runs
only while it has nothing else to do. It asks `cancelled()` whenever somebody comes, as a model does between its steps,
and stops at once when it should; or it cannot stop, and whoever comes waits for it.
"""

from __future__ import annotations

from contextlib import closing
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from mmcache.cache import Cache
from mmcache.encoder import Encoder
from mmcache.lab.prefetch_rivals import MakeGraph
from mmcache.lab.traces.sessions import Views
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings, Cancelled, cancelled
from mmcache.prefetch.worth import Trust
from mmcache.testing import FakeClock
from mmcache.visits import visit

HIT_SECONDS = 0.0005
"""A block that is there: identifying it, looking it up."""
TICK_SECONDS = 0.25
"""How often the prefetcher looks what there is to do, while nobody comes."""
LEARNS = 1 / 3
"""Share of the views at the beginning that fill the cache and teach: they are in no figure."""


class LabPrefetch(BehaviourPrefetch):
    """The product's, whose graph may be another one, and that says whether it holds back."""

    def __init__(self, settings: BehaviourSettings | None = None, graph: MakeGraph | None = None) -> None:
        super().__init__(settings, threaded=False)
        self._graph = graph

    def start(self, cache: Cache) -> None:
        """See `Prefetcher`."""
        super().start(cache)
        if (graph := self._graph) is not None:
            self._planner.realms.make = lambda settings: graph(settings, self._held)

    @property
    def off(self) -> bool:
        """It brings nothing, since too little of what it brought was used."""
        return self._planner.worth.trust is Trust.PAUSED


@dataclass
class Outcome:
    """What happened after the first views."""

    paints: list[float] = field(default_factory=list)
    """Seconds from a view to its last block, by view."""
    lookups: int = 0
    hits: int = 0
    """Lookups that computed nothing themselves."""
    computed: int = 0
    """By real requests."""
    computed_bytes: int = 0
    busy: float = 0.0
    """Seconds of the encoder for real requests."""
    prefetched: int = 0
    prefetched_bytes: int = 0
    used: int = 0
    """Prefetched blocks that were hit at least once before they left."""
    joined: int = 0
    """Of those, asked for while they were being computed."""
    cancelled: int = 0
    speculated: float = 0.0
    """Seconds of the encoder for prefetching, cancelled work too."""
    seconds: float = 0.0
    off: float = 0.0
    """Seconds during which it held back."""

    minutes: set[int] = field(default_factory=set)
    """In which it began to compute something."""

    @property
    def quiet(self) -> float:
        """Share of the minutes in which it began nothing."""
        return 1.0 - len(self.minutes) / (self.seconds / 60.0)

    @property
    def hit_rate(self) -> float:
        """Share of lookups."""
        return self.hits / self.lookups

    @property
    def use(self) -> float:
        """Share of prefetched blocks that were hit; 0 where there are none."""
        return self.used / self.prefetched if self.prefetched else 0.0


class World:
    """One run, once."""

    def __init__(
        self, views: Views, memory: int, prefetch: LabPrefetch | None, *, stops: bool = True, learns: float = LEARNS
    ) -> None:
        """memory: bytes. stops: whether the encoder can stop in the middle of a block."""
        self.views, self.outcome = views, Outcome()
        self._prefetch, self._stops = prefetch, stops
        self._clock = FakeClock()
        self._origin = self._clock.monotonic() - views.views[0].at
        self._cache = Cache(memory=memory, policy="lru", prefetch=prefetch, clock=self._clock)
        self._encode: Encoder = self._cache.wrap(self._compute, modality="text", signature="lab", guard=False)
        self._first = int(learns * len(views.views))
        self._next = 0  # view
        self._free = self._clock.monotonic()  # when the encoder is
        self._ready: dict[int, float] = {}
        self._fresh: dict[int, bool] = {}  # prefetched and not asked for; whether that is counted
        self._real, self._missed = True, False
        self._visitors = copy_context()  # what visitors look for is no part of the work that they interrupt
        self._speculation: Context | None = None

    def run(self) -> Outcome:
        """Replay all views."""
        views = self.views.views
        with closing(self._cache):
            while self._next < len(views):
                at, idle = self._next_at, max(self._now, self._free)
                if self._prefetch is not None and idle < at:
                    self._pass(idle)
                    self._real = False
                    begun = self._prefetch.pump(self._now)
                    self._real = True
                    if not begun:
                        self._pass(min(idle + TICK_SECONDS, at))
                else:
                    self._serve()
        self.outcome.seconds = views[-1].at - views[self._first].at
        return self.outcome

    @property
    def _now(self) -> float:
        return self._clock.monotonic()

    @property
    def _next_at(self) -> float:
        """When the next visitor comes."""
        views = self.views.views
        return self._origin + views[self._next].at if self._next < len(views) else inf

    def _pass(self, until: float) -> None:
        self._clock.advance(max(0.0, until - self._now))

    @property
    def _counts(self) -> bool:
        return self._next > self._first

    def _serve(self) -> None:
        """The next view, when its visitor comes."""
        view, at, outcome = self.views.views[self._next], self._next_at, self.outcome
        self._next += 1
        self._pass(at)
        painted = at
        off = self._prefetch is not None and self._prefetch.off
        if self._counts and off and self._next_at < inf:
            outcome.off += self._next_at - at
        for block in view.blocks:
            self._missed = False
            with visit(view.session):
                self._encode(str(block))
            ready = max(at, self._ready.get(block, at))
            painted = max(painted, ready)
            fresh = self._fresh.pop(block, False) and not self._missed
            if self._counts:
                outcome.lookups += 1
                outcome.hits += not self._missed
                outcome.used += fresh
                outcome.joined += fresh and ready > at
        if self._counts:
            outcome.paints.append(painted - at + HIT_SECONDS * len(view.blocks))

    def _compute(self, source: str) -> npt.NDArray[np.uint8]:
        """The encoder."""
        block = int(source)
        if self._real:
            self._compute_real(block)
        else:
            self._speculate(block)
        return np.zeros(self.views.sizes[block], np.uint8)

    def _compute_real(self, block: int) -> None:
        cost, outcome = self.views.costs[block], self.outcome
        self._missed = True
        if self._prefetch is not None:  # what its thread would do meanwhile, and the work that it does
            self._prefetch.pump(self._now)
            if self._speculation is not None:
                self._speculation.run(cancelled)
        self._free = self._ready[block] = max(self._now, self._free) + cost
        if self._counts:
            outcome.computed += 1
            outcome.computed_bytes += self.views.sizes[block]
            outcome.busy += cost

    def _speculate(self, block: int) -> None:
        cost, outcome, began = self.views.costs[block], self.outcome, self._now
        end = began + cost
        if self._counts:
            outcome.minutes.add(int(began // 60))
        if not self._stops:
            self._free = end
        self._real, self._speculation = True, copy_context()
        try:
            while self._next_at < end and block not in self.views.views[self._next].blocks:
                self._visitors.run(self._serve)
                if self._stops and cancelled():
                    if self._counts:
                        outcome.cancelled += 1
                        outcome.speculated += self._now - began
                    raise Cancelled
        finally:
            self._real, self._speculation = False, None
        self._pass(min(end, self._next_at))  # whoever asks for it meanwhile waits for the rest
        self._free = max(end, self._free)
        self._ready[block] = end
        self._fresh[block] = self._counts
        if self._counts:
            outcome.prefetched += 1
            outcome.prefetched_bytes += self.views.sizes[block]
            outcome.speculated += cost
