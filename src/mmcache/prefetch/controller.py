"""`Controller`: whether to look for something to prefetch, and whether to prefetch it (D5).

    Idle ──misses and slow──▸ Evaluating ──candidates──▸ Preloading ──done──▸ Idle

and from each of the two back to Idle by every guard. It decides; its caller looks for candidates and loads them. Pure:
time is an argument, and what it keeps has a fixed size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

from mmcache.model.errors import SettingsError
from mmcache.prefetch.latencies import SlidingLatencies


class State(StrEnum):
    IDLE = "idle"
    EVALUATING = "evaluating"
    """The caller looks for candidates."""
    PRELOADING = "preloading"
    """The caller loads them."""


class Reason(StrEnum):
    """Why the state changed, or why it stays Idle."""

    MISSES = "misses"
    """Enough of them, and lookups are slow: worth looking for candidates."""
    CANDIDATES = "candidates"
    """There are some."""
    DONE = "done"
    """All were loaded."""
    NO_CANDIDATES = "no-candidates"
    OVERLOAD = "overload"
    """Real requests need the machine."""
    FAILURES = "failures"
    """Loading failed several times running."""
    UNUSED = "unused"
    """Too little of what was prefetched was asked for."""
    BUDGET = "budget"
    """Bytes or requests are spent."""
    TIMEOUT = "timeout"
    """Nobody said that it was over."""
    SHUTDOWN = "shutdown"
    # Of Idle only: nothing to do, or not yet.
    FEW_MISSES = "few-misses"
    FAST = "fast"
    RESTING = "resting"
    """After an end that is not worth repeating at once."""


@dataclass(frozen=True)
class ControllerSettings:
    """When to act. Seconds, unless said otherwise."""

    window: float = 60.0
    """Over which misses and latencies are taken."""
    misses_a_minute: float = 3.0
    latency: float = 0.080
    """Of real lookups, at `share`: above that they are slow."""
    share: float = 0.95
    busy: float = 0.9
    """Share (0…1) of what may compute that real requests take, from which on there is none left."""
    waiting: int = 1
    """Real requests that wait for their turn, from which on nothing speculative begins."""
    failures: int = 3
    """Running, until it stops."""
    least_use: float = 0.25
    """Share (0…1) of prefetched blocks that must be asked for."""
    evaluating: float = 5.0
    """At most."""
    preloading: float = 30.0
    """At most."""
    rest: float = 1.0
    """After finding nothing, a timeout, an overload or a spent budget."""
    back_off: float = 30.0
    """After failures or too little use; doubled each time running, up to `longest`."""
    longest: float = 3600.0
    log: int = 256
    """Transitions that are remembered."""

    def __post_init__(self) -> None:
        """Raises `SettingsError`."""
        seconds = (self.window, self.evaluating, self.preloading, self.back_off)
        if not all(isfinite(one) and one > 0 for one in seconds) or not 0 <= self.rest < inf:
            raise SettingsError("a controller's window, limits and back-off are finite numbers of seconds above 0")
        if not (0 < self.share < 1 and 0 < self.busy <= 1 and 0 <= self.least_use <= 1):
            raise SettingsError("a controller's shares are between 0 and 1")
        if min(self.waiting, self.failures, self.log) < 1 or not self.back_off <= self.longest < inf:
            raise SettingsError("a controller counts from 1, and its longest back-off is at least the first")


@dataclass(frozen=True)
class Signals:
    """What happened since the last step, and how things are. The default says that nothing did."""

    misses: int = 0
    """Real lookups that missed, since the last step."""
    latencies: Sequence[float] = ()
    """Seconds of real lookups (hits too), since the last step."""
    load: float = 0.0
    """Share (0…1) of what may compute that real requests take now."""
    waiting: int = 0
    """Real requests that wait now."""
    candidates: int | None = None
    """That evaluating found; None: it is not over."""
    pending: int = 0
    """Loads that are left, under way ones too."""
    loaded: int = 0
    """Since the last step."""
    failed: int = 0
    """Loads that raised, since the last step. They come after those that were `loaded`."""
    use: float | None = None
    """Share (0…1) of prefetched blocks that was asked for; None: too few to say. Counted anew after `UNUSED`."""
    spent: bool = False
    """The budget of bytes or requests is used up."""
    stopping: bool = False
    """For good."""


@dataclass(frozen=True)
class Transition:
    was: State
    state: State
    reason: Reason
    at: float


class Controller:
    """`step` as often as there is something to say, and at least once a second or so while it is not Idle."""

    def __init__(self, settings: ControllerSettings = ControllerSettings()) -> None:
        self.settings = settings
        self.state = State.IDLE
        self.held: Reason | None = Reason.FEW_MISSES
        """Why it is Idle; None: it is not."""
        self.stopped = False
        self.log: deque[Transition] = deque(maxlen=settings.log)
        """The last transitions, oldest first."""
        self._recent = SlidingLatencies(settings.window)
        self._now = -inf
        self._since = 0.0
        self._rests_until = -inf
        self._failures = 0
        self._setbacks = {Reason.FAILURES: 0, Reason.UNUSED: 0}  # running: back-off doubles with each

    def step(self, now: float, signals: Signals = Signals()) -> list[Transition]:
        """Take `signals` in and move; what moved, oldest first. `now`: seconds; an earlier one counts as the last."""
        now = self._now = max(now, self._now)
        self._recent.add(now, signals.misses, signals.latencies)
        if signals.loaded:
            self._failures = self._setbacks[Reason.FAILURES] = 0
        self._failures += signals.failed
        if signals.use is not None and signals.use >= self.settings.least_use:
            self._setbacks[Reason.UNUSED] = 0
        guard = self._guard(signals)
        if self.state is State.IDLE:
            return self._from_idle(now, guard)
        limit = self.settings.evaluating if self.state is State.EVALUATING else self.settings.preloading
        if guard is not None:
            return self._idle(now, guard)
        if self.state is State.EVALUATING and signals.candidates is not None:
            return (
                self._move(now, State.PRELOADING, Reason.CANDIDATES)
                if signals.candidates
                else self._idle(now, Reason.NO_CANDIDATES)
            )
        if self.state is State.PRELOADING and not signals.pending:
            return self._idle(now, Reason.DONE)
        return self._idle(now, Reason.TIMEOUT) if now - self._since >= limit else []

    @property
    def _backing_off(self) -> bool:
        return self.held in self._setbacks

    @property
    def rests_until(self) -> float:
        """When it may leave Idle again, as far as back-off goes."""
        return self._rests_until

    def _guard(self, signals: Signals) -> Reason | None:
        """What forbids speculative work, whatever the state; the gravest first."""
        settings = self.settings
        if self.stopped or signals.stopping:
            return Reason.SHUTDOWN
        if signals.load >= settings.busy or signals.waiting >= settings.waiting:
            return Reason.OVERLOAD
        if self._failures >= settings.failures:
            return Reason.FAILURES
        if signals.use is not None and signals.use < settings.least_use:
            return Reason.UNUSED
        return Reason.BUDGET if signals.spent else None

    def _from_idle(self, now: float, guard: Reason | None) -> list[Transition]:
        if guard is Reason.SHUTDOWN:
            return [] if self.stopped else self._idle(now, guard)
        if now < self._rests_until:
            if not self._backing_off:
                if guard in self._setbacks:
                    return self._idle(now, guard)
                self.held = guard or Reason.RESTING
        elif guard in self._setbacks:  # came to light when all was over: back off all the same
            return self._idle(now, guard)
        elif guard is not None:
            self.held = guard
        elif self._recent.misses * 60.0 / self.settings.window < self.settings.misses_a_minute:
            self.held = Reason.FEW_MISSES
        elif self._recent.percentile(self.settings.share) <= self.settings.latency:
            self.held = Reason.FAST
        else:
            return self._move(now, State.EVALUATING, Reason.MISSES)
        return []

    def _idle(self, now: float, reason: Reason) -> list[Transition]:
        settings = self.settings
        if reason is Reason.SHUTDOWN:
            self.stopped = True
        elif reason in self._setbacks:
            doubled = 2.0 ** min(self._setbacks[reason], 30)
            self._rests_until = now + min(settings.longest, settings.back_off * doubled)
            self._setbacks[reason] += 1
            self._failures = 0
        elif reason is not Reason.DONE:
            self._rests_until = now + settings.rest
        self.held = reason
        return self._move(now, State.IDLE, reason)

    def _move(self, now: float, state: State, reason: Reason) -> list[Transition]:
        moved = Transition(self.state, state, reason, now)
        self.state, self._since = state, now
        if state is not State.IDLE:
            self.held = None
        self.log.append(moved)
        return [moved]
