"""`Planner`: what a prefetcher knows, and what it would bring next. Pure: time is an argument; it calls nobody.

visits ──▸ realms (sessions, graph) ──▸ candidates ──▸ queue ──▸ next()  what to bring
events ──▸ demand, controller (may anything be done?), worth (does it pay?), budget (how much?)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from mmcache.model.event import Event, Evicted, Invalidated, Missed, Stored
from mmcache.model.key import Key
from mmcache.prefetch.budget import Budget
from mmcache.prefetch.controller import Controller, ControllerSettings, Reason, Signals, State, Transition
from mmcache.prefetch.demand import Demand
from mmcache.prefetch.graph import Candidate, GraphSettings
from mmcache.prefetch.options import BehaviourSettings
from mmcache.prefetch.outstanding import Brought, Outstanding
from mmcache.prefetch.realms import Realms
from mmcache.prefetch.work import Queue, Retries, Task
from mmcache.prefetch.worth import Trust, Worth, WorthSettings

MOST_WAITING = 256
"""Sessions whose last visit was not looked ahead from yet."""
MOST_HITS = 256
"""Latencies that are told at a time: more say no more."""
LATER_SECONDS = 0.5
ASK_SECONDS = 10.0
"""How often it is asked whether it would look ahead, when there is nothing to be seen there."""
_NOT_WORTH_LOOKING = (Reason.FEW_MISSES, Reason.FAST)


class Visit(NamedTuple):
    """A real lookup."""

    realm: Hashable
    """Nothing learned in one is used in another."""
    session: Hashable
    key: Key
    at: float


class Move(NamedTuple):
    """A transition of the controller, with a reason that says which budget was meant."""

    transition: Transition
    reason: str


@dataclass
class Counts:
    """Since the start."""

    visits: int = 0
    promoted: int = 0
    computed: int = 0
    failed: int = 0
    cancelled: int = 0
    used: int = 0
    wasted: int = 0
    bytes: int = 0
    seconds_saved: float = 0.0
    """Of computing, that whoever asked did not wait for."""
    seconds_spent: float = 0.0
    """Computing speculatively, in vain too."""
    pauses: int = 0
    last_failure: str = field(default="")
    """The type of the error only: messages may hold contents."""


class Planner:
    """Takes in what happened, and says what to bring. For one thread at a time."""

    def __init__(self, settings: BehaviourSettings, *, lower: bool) -> None:
        """lower: whether there are tiers below memory, in which what memory evicts can still be found."""
        self.settings, s = settings, settings
        graph = GraphSettings(
            half_life=s.half_life_seconds, most_nodes=s.nodes, most_edges=s.edges, floor=s.least_probability
        )
        self.realms = Realms(graph, s.session_gap_seconds, s.sessions, s.lookback)
        self.controller = Controller(
            ControllerSettings(
                misses_a_minute=s.misses_a_minute, latency=s.latency_seconds, least_use=s.least_use,
                rest=0.25, back_off=s.pause_seconds, longest=s.longest_pause_seconds,
            )
        )  # fmt: skip
        self.worth = Worth(
            WorthSettings(
                least_use=s.least_use, first=s.first_sample, sample=s.sample, window=s.window, ahead=4 * s.window,
                pause=s.pause_seconds, longest_pause=s.longest_pause_seconds,
            )
        )  # fmt: skip
        self.budget = Budget(s.bytes_per_second, s.computations_per_second, s.saved_seconds)
        self.demand = Demand(s.patience_seconds)
        self.queue = Queue(s.queue, s.stale_seconds)
        self.retries = Retries(s.tries, s.back_off_seconds, s.longest_back_off_seconds, s.seed)
        self.outstanding = Outstanding(4 * s.window, s.judged_after)
        self.counts = Counts()
        self._lower = lower
        self._ahead: OrderedDict[tuple[Hashable, Hashable], Visit] = OrderedDict()  # sessions to look ahead for
        self._lately: deque[float] = deque(maxlen=MOST_HITS)  # latencies to be told
        self._misses = self._loaded = self._failed = 0
        self._fell: float | None = None  # share of use, when trust just ended
        self._since: float | None = None  # somebody waits
        self._held: Reason | None = Reason.FEW_MISSES
        self._able = True
        self._asked, self._asked_of = -inf, 0  # when the controller was last asked, and at which visit

    # What happened --------------------------------------------------------------------------------------------------

    def heard(self, events: Sequence[Event], now: float, over: Sequence[Key] = (), computing: int = 0) -> int:
        """Take events in, oldest first; before the visits that were made meanwhile. How many of them are misses.
        over, computing: see `Demand.heard`."""
        misses, waits = self.demand.heard(events, now, over, computing)
        self._misses += misses
        self._lately.extend(waits)
        for event in events:
            if isinstance(event, Missed | Invalidated | Evicted):
                self._lost(event, now)
            elif isinstance(event, Stored):
                self.retries.succeeded(event.key)
        return misses

    def _lost(self, event: Missed | Invalidated | Evicted, now: float) -> None:
        """What was brought is not there any more. What was computed still helps in a lower tier."""
        found = self.outstanding.find(event.key)
        if found is None or (
            isinstance(event, Evicted) and (event.tier != "memory" or (self._lower and found.computed))
        ):
            return
        self._given_up(found, now)
        self.outstanding.forget(event.key)

    def visited(self, visit: Visit, now: float) -> None:
        """Take a visit in."""
        self.counts.visits += 1
        self.queue.drop(visit.key)
        session = (visit.realm, visit.session)
        self._asked_for(visit.key, session, now)
        self.outstanding.gap(session, visit.at)
        if not self.realms.visit(*visit):
            return
        self._ahead[session] = visit
        self._ahead.move_to_end(session)
        if len(self._ahead) > MOST_WAITING:
            self._ahead.popitem(last=False)

    def looks_for(self, key: Key) -> None:
        """Speculative work does: that is neither a visit nor a miss."""
        self._misses -= self.demand.looks_for(key) and self._misses > 0

    def hits(self, count: int) -> None:
        """So many lookups needed no computation."""
        self._lately.extend([0.0] * min(count, MOST_HITS))

    def _asked_for(self, key: Key, session: Hashable, now: float) -> None:
        """Of what was brought, by whomever it was expected, and by anybody."""
        found = self.outstanding.find(key)
        if found is None:
            return
        if not found.asked:
            found.asked = True
            self.counts.used += 1
            self.counts.wasted -= found.given_up
            self.counts.seconds_saved += found.cost
            # Without us it would have missed. Were it a hit to the controller, that would stop as soon as it helps.
            self._misses += 1
            self._lately.append(found.cost)
        if session in found.sessions:
            self._settle(found, True, now)
            self.outstanding.forget(key)

    def _given_up(self, found: Brought, now: float) -> None:
        if not (found.asked or found.given_up):
            found.given_up = True
            self.counts.wasted += 1
        self._settle(found, False, now)

    def _settle(self, found: Brought, used: bool, now: float) -> None:
        if self.worth.settle(found.block, used, now):
            self._fell = 0.0 if self.worth.share is None else self.worth.share
            self.counts.pauses += 1
            self.queue.clear()

    # What to do -----------------------------------------------------------------------------------------------------

    def step(
        self,
        now: float,
        *,
        under_way: int,
        held: Callable[[Key], bool],
        realm: Callable[[Key], Hashable],
        stop: bool = False,
        able: bool = True,
        between: Callable[[], None] = lambda: None,
    ) -> list[Move]:
        """Let time pass; transitions, oldest first. under_way: tasks. held: whether memory holds a block.
        realm: whose a key is. able: whether the cache would take anything. between: called between two pieces of what
        may take long."""
        for one in self.outstanding.unlikely(now):
            self._given_up(one, now)
        self.outstanding.expire(now)
        self._able = able
        waits = self.demand.waiting(now) > 0
        self._since = (now if self._since is None else self._since) if waits else None
        overloaded = self._since is not None and now - self._since >= self.settings.overload_seconds
        spent = not able or not self.budget.may_bring(now) or (self.worth.room(now) <= 0 and not under_way)
        moves: list[Move] = []
        for _ in range(3):  # Idle → Evaluating → Preloading in one step
            if self.controller.state is not State.IDLE or self._held not in _NOT_WORTH_LOOKING:
                self._look_ahead(now, held, realm, between)
            nothing = self._nothing(now)
            moved = self.controller.step(now, self._signals(under_way, overloaded, spent or nothing, stop))
            if spent or not nothing:
                self._held, self._asked, self._asked_of = self.controller.held, now, self.counts.visits
            moves += [Move(one, self._why(one.reason, now)) for one in moved]
            if not moved or self.controller.state is State.IDLE:
                break
        return moves

    def _nothing(self, now: float) -> bool:
        """Whether it is Idle and may stay so unasked, for there is nothing to bring: else two transitions a visit would
        say so."""
        if self.controller.state is not State.IDLE or len(self.queue):
            return False
        if self._held in _NOT_WORTH_LOOKING:
            return not self._ahead
        return now - self._asked < ASK_SECONDS or self.counts.visits == self._asked_of

    def _signals(self, under_way: int, overloaded: bool, spent: bool, stop: bool) -> Signals:
        evaluated = self.controller.state is State.EVALUATING
        signals = Signals(
            misses=self._misses,
            latencies=tuple(self._lately),
            waiting=int(overloaded),
            candidates=len(self.queue) if evaluated else None,
            pending=len(self.queue) + under_way,
            loaded=self._loaded,
            failed=self._failed,
            use=self._fell,
            spent=spent,
            stopping=stop,
        )
        self._misses = self._loaded = self._failed = 0
        self._lately.clear()
        self._fell = None
        return signals

    def _why(self, reason: Reason, now: float) -> str:
        if reason is not Reason.BUDGET:
            return reason.value
        return (self.short_of(now) or reason.value) if self._able else "off"

    def reason(self, now: float) -> str:
        """Why it does nothing; or `misses`, when it does something."""
        return Reason.MISSES.value if self._held is None else self._why(self._held, now)

    def short_of(self, now: float) -> str:
        """What is spent: `bytes`, `unused` (paused, as too little was used), `sample` (it is not known yet whether it
        pays), or nothing."""
        if self.worth.room(now) <= 0:
            return "unused" if self.worth.trust is Trust.PAUSED else "sample"
        return "" if self.budget.may_bring(now) else "bytes"

    def _look_ahead(
        self, now: float, held: Callable[[Key], bool], realm: Callable[[Key], Hashable], between: Callable[[], None]
    ) -> None:
        while self._ahead:
            between()
            session, visit = self._ahead.popitem(last=False)
            if now - visit.at >= self.settings.stale_seconds:
                continue
            for found in self._candidates(visit, now):
                # What one realm's sessions look for is never brought for another's: graphs are kept apart, so no path
                # leads there. Asked all the same.
                if realm(found.node) != visit.realm:
                    continue
                if held(found.node):
                    self.outstanding.expect(found.node, session)
                elif self.retries.may(found.node, now):
                    who = frozenset([session])
                    self.queue.offer(Task(found.node, found.hop, found.probability, visit.at, now, who, found.lag))

    def _candidates(self, visit: Visit, now: float) -> Iterable[Candidate[Key]]:
        known = self.realms.find(visit.realm)
        if known is None:
            return []
        recent = known.sessions.recent(visit.session, now)
        return known.graph.candidates(recent, now, hops=self.settings.hops, most=self.settings.width)

    def next(self, now: float, under_way: int) -> Task | None:
        """What to bring now, if anything."""
        if (
            self.controller.state is not State.PRELOADING
            or under_way >= self.settings.concurrent
            or self.demand.waiting(now)
            or not self.budget.may_bring(now)
            or self.worth.room(now) <= under_way
        ):
            return None
        return self.queue.take(now)

    def should_stop(self, key: Key, now: float) -> bool:
        """Whether speculative work on `key` is in somebody's way."""
        return self.demand.waiting(now, besides=key) > 0

    def ttl(self, task: Task) -> float:
        """Seconds that it stays."""
        return self.settings.ttl_seconds * 2.0**task.hop

    # How it went ----------------------------------------------------------------------------------------------------

    def brought(
        self, task: Task, size: int, *, cost: float, computed: bool, now: float, joined: Sequence[Hashable] = ()
    ) -> None:
        """It is in memory. cost: seconds of computing. joined: sessions that asked for it meanwhile."""
        counts = self.counts
        counts.promoted += not computed
        counts.computed += computed
        counts.bytes += size
        counts.seconds_spent += cost
        self.budget.brought(size, now)
        self.retries.succeeded(task.key)
        self._loaded += 1
        if (before := self.outstanding.find(task.key)) is not None:
            self._given_up(before, now)  # it went, and nobody said so
        block, deadline = self.worth.brought(), now + self.ttl(task)
        self.outstanding.add(task.key, Brought(block, now, deadline, cost, computed, set(task.sessions)), task.hop)
        for session in joined:
            self._asked_for(task.key, session, now)

    def strayed(self, size: int, cost: float, now: float) -> None:
        """Something was brought, but under another key: wasted, as far as anybody knows."""
        self.counts.computed += 1
        self.counts.wasted += 1
        self.counts.bytes += size
        self.counts.seconds_spent += cost
        self.budget.brought(size, now)
        self.worth.settle(self.worth.brought(), False, now)

    def failed(self, task: Task, error: BaseException, seconds: float, now: float) -> None:
        """It raised."""
        self.counts.failed += 1
        self.counts.last_failure = type(error).__name__
        self.counts.seconds_spent += seconds
        self._failed += 1
        due = self.retries.failed(task.key, now)
        if due is not None:
            self.queue.offer(replace(task, due=due))

    def stopped(self, task: Task, seconds: float, now: float) -> None:
        """It gave way; it is tried another time, but not for ever."""
        self.counts.cancelled += 1
        self.counts.seconds_spent += seconds
        if task.stopped + 1 < self.settings.tries:
            self.queue.offer(replace(task, stopped=task.stopped + 1))

    def nowhere(self, task: Task, now: float) -> None:
        """Nobody has it and nobody knows how to compute it: not looked for again until it is stored, or long after."""
        self.retries.failed(task.key, now)

    def later(self, task: Task, now: float, *, counted: bool) -> None:
        """It was no moment for it. counted: that may be so only a few times."""
        stopped = task.stopped + counted
        if stopped < self.settings.tries:
            self.queue.offer(replace(task, due=now + LATER_SECONDS, stopped=stopped))
