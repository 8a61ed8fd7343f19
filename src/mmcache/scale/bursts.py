"""`BurstDetector`: is this more than usual (system F1)? Pure: time is an argument, memory is bounded.

The baseline is the median of the last sixty windows (an hour), each carried to now by what the day usually does
between then and now (`days`). A median is not moved by what lasts less than half of it, and takes a lasting new level
over whole (running medians: Tukey, Exploratory Data Analysis, 1977). A burst has to be above `factor` times the
baseline, and the mean of the last window, of three or of five beyond the noise that such means have (`noise`): where
arrivals come in clusters, one window says little, and five have half its noise. What came while it was a burst counts
for the baseline, but as no noise. It is over when it has been below `end_factor` times the baseline for the quiet time,
or below the same part of the way up from all three medians.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any, ClassVar

import msgspec

from mmcache.model.errors import ScaleError
from mmcache.scale.days import DAYS, PARTS, Days, short
from mmcache.scale.noise import FEWEST, WIDTHS, poisson, spread
from mmcache.scale.spec import BurstSpec
from mmcache.scale.window import Window

VERSION = 2
"""1 knew one window."""
MEMORY = 60
"""Windows of which the baseline is the median."""
LATEST = 1 / 6
"""Of the window: what `Load.latest` is the rate of."""
GAP_SECONDS = 300.0
"""Or five windows, if that is longer: after so long unwatched, the last windows say nothing of now."""
_PEAKS = 15
_LARGEST = 1e18
"""Of numbers that are believed when they were saved."""


@dataclass(frozen=True)
class Load:
    """What the cluster has to carry, and whether that is more than usual."""

    qps: float
    """Requests a second, the mean over the window."""
    baseline: float | None
    """What is usual now; None: too little was seen."""
    burst: bool
    since: float | None
    """When the burst began; None without one."""
    reason: str
    """`TooFewSamples`, `Usual`, `Noise` (high, but too few requests to say), `AboveUsual`, `Subsiding`, `Over`."""
    latest: float
    """Requests a second in the last sixth of the window."""
    peak: float | None
    """The highest `qps` within the quiet time; None: not watched for so long yet."""


@dataclass
class _State:
    version: int = VERSION
    window_seconds: float = 0.0
    quiet_seconds: float = 0.0
    at: float | None = None
    samples: int = 0
    recent: Window = field(default_factory=Window)
    open: tuple[float, float] = (0.0, 0.0)
    """(seconds, requests) of the window that is to be remembered next."""
    windows: list[tuple[float, float]] = field(default_factory=list)
    """(middle, rate), oldest first."""
    loud: list[float] = field(default_factory=list)
    """The middles of those that were full while it was a burst."""
    peaks: list[tuple[float, float]] = field(default_factory=list)
    """(end, highest mean), oldest first."""
    watched_since: float | None = None
    level: float | None = None
    wide: dict[int, Window] = field(default_factory=dict)
    """By `WIDTHS`, but the first, which is `recent`."""
    noise: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By `WIDTHS`, as far as there were enough windows: (median, what is beyond noise above it), a second."""
    since: float | None = None
    below_since: float | None = None
    days: Days = field(default_factory=Days)


class BurstDetector:
    """`observe` at every look; one a few seconds is right, a few a window the least."""

    widths: ClassVar[dict[int, float]] = WIDTHS

    def __init__(self, spec: BurstSpec) -> None:
        self.spec = spec
        self._state = _State(window_seconds=spec.window_seconds, quiet_seconds=spec.quiet_seconds)

    def observe(self, at: float, requests_per_second: float, seconds: float | None = None) -> Load:
        """`at`: Unix seconds, for the time of day. The rate is the mean of the last `seconds`; None: since the last
        call. A time before the last call's is a clock that was set back: what is remembered moves with it."""
        rate = requests_per_second if isfinite(requests_per_second) and requests_per_second > 0 else 0.0
        state, spec = self._state, self.spec
        if state.at is not None and at < state.at:
            self._shift(at - state.at)
            seconds = 0.0 if seconds is None else seconds
        gap = max(GAP_SECONDS, 5 * spec.window_seconds)
        elapsed = at - state.at if state.at is not None else 0.0
        if elapsed > gap and (seconds is None or seconds < elapsed / 2):
            self._unwatched(at)
            elapsed = 0.0
        covered = elapsed if seconds is None else min(max(seconds, 0.0), gap)
        state.at = at
        state.samples += 1
        missed = 0.0 if seconds is None else elapsed - seconds
        if state.watched_since is None or missed > spec.window_seconds:
            state.watched_since, state.peaks = at, []  # what was missed may have been the highest
        if covered > 0:
            state.recent.add(at, covered, rate * covered, spec.window_seconds)
            for wide in self.widths.keys() - {1}:
                window = state.wide.setdefault(wide, Window())
                window.add(at, covered, rate * covered, wide * spec.window_seconds)
            self._remember(at, covered, rate)
        known = state.recent.covered > 0
        return self._judged(at, state.recent.rate if known else rate, rate)

    @property
    def bursting(self) -> bool:
        """As the last call of `observe` said."""
        return self._state.since is not None

    def saved(self) -> dict[str, Any]:
        """All that it knows, as JSON of a few kilobytes."""
        saved: dict[str, Any] = msgspec.to_builtins(self._state, str_keys=True)
        return saved

    @classmethod
    def restored(cls, spec: BurstSpec, saved: Any, at: float) -> BurstDetector:
        """Goes on where `saved` ended. Raises `ScaleError` for what is no saved state of this version."""
        try:
            state = msgspec.convert(saved, _State, strict=False, str_keys=True)
        except msgspec.ValidationError as error:
            raise ScaleError(f"what was saved of the load is damaged: {error}") from error
        if state.version not in (1, VERSION):
            raise ScaleError(f"what was saved of the load is of version {state.version}, and this is {VERSION}")
        if not _sound(state):
            raise ScaleError("what was saved of the load is damaged: a number cannot be, or a list is too long")
        state.version = VERSION
        detector = cls(spec)
        detector._state = state
        detector.change(spec)
        if state.at is not None and at < state.at:
            detector._shift(at - state.at)
        return detector

    def change(self, spec: BurstSpec) -> None:
        """The user changed it. With another window, the last ones are not comparable; what is usual by day stays."""
        self.spec = spec
        old = self._state
        if old.window_seconds != spec.window_seconds:
            self._state = _State(
                window_seconds=spec.window_seconds, quiet_seconds=spec.quiet_seconds, at=old.at, since=old.since,
                days=old.days,
            )  # fmt: skip
        elif old.quiet_seconds != spec.quiet_seconds:
            if old.watched_since is not None and old.at is not None:  # peaks go no further back than was asked for
                old.watched_since = max(old.watched_since, old.at - old.quiet_seconds)
            old.quiet_seconds = spec.quiet_seconds

    def _judged(self, at: float, qps: float, rate: float) -> Load:
        state, spec = self._state, self.spec
        quiet = spec.quiet_seconds
        self._peak(at, qps)
        level = state.level if len(state.windows) >= FEWEST and state.samples >= spec.fewest_samples else None
        reason = "TooFewSamples"
        if level is not None and state.recent.covered >= spec.window_seconds / 2:
            beyond = self._beyond()
            reason = "Usual" if qps <= spec.factor * level else "AboveUsual" if beyond > 1 else "Noise"
            if state.since is None and reason == "AboveUsual":
                state.since, state.below_since = at, None
            elif state.since is not None:
                nearer = (spec.end_factor - 1) / (spec.factor - 1)
                reason = self._going_on(at, qps < spec.end_factor * level or beyond < nearer)
        watched = at - (at if state.watched_since is None else state.watched_since)
        return Load(
            qps, level, state.since is not None, state.since, reason,
            state.recent.latest(LATEST * spec.window_seconds) if state.recent.pieces else rate,
            max(peak for _, peak in state.peaks) if watched >= quiet else None,
        )  # fmt: skip

    def _going_on(self, at: float, below: bool) -> str:
        """Of a burst: it ends when the rate has been low for the quiet time."""
        state = self._state
        if not below:
            state.below_since = None
            return "AboveUsual"
        state.below_since = at if state.below_since is None else state.below_since
        if at - state.below_since < self.spec.quiet_seconds:
            return "Subsiding"
        state.since = state.below_since = None
        return "Over"

    def _beyond(self) -> float:
        """How far above the usual it is: 1 where noise ends; of the windows of all widths, the one that says most."""
        state, found = self._state, 0.0
        for wide, (middle, margin) in state.noise.items():
            window = state.recent if wide == 1 else state.wide.get(wide, Window())
            seconds = window.covered
            if seconds >= wide * self.spec.window_seconds / 2:
                # After a burst that became usual, noise is known of what was before it: it grew with the level.
                level = max(middle, state.level or 0.0)
                margin = max(margin * level / middle if middle > 0 else margin, poisson(level, seconds))
                found = max(found, (window.rate - level) / margin)
        return found

    def _remember(self, at: float, covered: float, rate: float) -> None:
        """Fill the open window; a full one is remembered, and the baseline is made anew."""
        state = self._state
        seconds, requests = state.open[0] + covered, state.open[1] + rate * covered
        if seconds < self.spec.window_seconds:
            state.open = (seconds, requests)
            return
        mean, middle = short(requests / seconds), round(at - seconds / 2, 1)
        state.open = (0.0, 0.0)
        state.windows = [*state.windows, (middle, mean)][-MEMORY:]
        state.days.add(middle, seconds, mean)
        carried = state.days.carried(state.windows, at)
        state.level = short(median(carried))
        state.loud = [one for one in state.loud if one >= state.windows[0][0]] + [middle] * self.bursting
        calm = [rate for (then, _), rate in zip(state.windows, carried, strict=True) if then not in state.loud]
        for wide, deviations in self.widths.items():
            noise = spread(calm, wide, deviations)
            if noise is not None:
                state.noise[wide] = noise

    def _peak(self, at: float, qps: float) -> None:
        quiet, peaks = self.spec.quiet_seconds, self._state.peaks
        if peaks and (at - peaks[-1][0]) < quiet / _PEAKS:
            peaks[-1] = (peaks[-1][0], max(peaks[-1][1], qps))  # keeps the time at which this piece began
        else:
            peaks.append((at, qps))
        piece = quiet / _PEAKS
        self._state.peaks = [one for one in peaks if one[0] + piece >= at - quiet][-_PEAKS - 3 :]

    def _unwatched(self, at: float) -> None:
        """Nobody looked for long."""
        state = self._state
        old = at - max(MEMORY * self.spec.window_seconds, GAP_SECONDS) * 2
        state.windows = [window for window in state.windows if window[0] >= old]
        state.recent, state.open, state.peaks, state.watched_since = Window(), (0.0, 0.0), [], at
        state.wide, state.noise = {}, {}
        state.samples, state.since, state.below_since = 0, None, None

    def _shift(self, seconds: float) -> None:
        state = self._state
        for window in (state.recent, *state.wide.values()):
            window.shift(seconds)
        state.loud = [middle + seconds for middle in state.loud]
        state.windows = [(middle + seconds, rate) for middle, rate in state.windows]
        state.peaks = [(end + seconds, peak) for end, peak in state.peaks]
        for name in ("at", "watched_since", "since", "below_since"):
            value = getattr(state, name)
            setattr(state, name, None if value is None else value + seconds)


def _sound(state: _State) -> bool:
    """Whether nothing in it is beyond what `observe` leaves there."""
    days = state.days
    times = [state.at, state.watched_since, state.since, state.below_since]
    pieces = [piece for window in (state.recent, *state.wide.values()) for piece in window.pieces]
    times += [*state.loud, *(one[0] for one in (*pieces, *state.windows, *state.peaks))]
    amounts = [state.window_seconds, state.quiet_seconds, state.samples, state.level or 0.0]
    amounts += [*state.open, *days.open]
    amounts += [one for piece in pieces for one in piece[1:]] + days.minutes
    amounts += [one for pair in state.noise.values() for one in pair]
    amounts += [rate for _, rate in (*state.windows, *state.peaks, *days.fresh)]
    amounts += [rate for rates in days.usual.values() for rate in rates]
    return (
        all(abs(time) < _LARGEST for time in times if time is not None)
        and all(0 <= amount < _LARGEST for amount in amounts)
        and all(length > 0 for _, length, _ in pieces)
        and {*state.wide, *state.noise} <= WIDTHS.keys()
        and {*days.usual, *(part for part, _ in days.fresh), max(0, days.part)} <= set(range(PARTS))
        and len(pieces) <= MEMORY * len(WIDTHS)
        and max(len(state.windows), len(state.loud), len(state.peaks)) <= MEMORY
        and max(len(days.fresh), len(days.minutes)) <= MEMORY
        and max(map(len, days.usual.values()), default=0) <= DAYS
    )
