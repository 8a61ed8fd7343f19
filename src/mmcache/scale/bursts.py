"""`BurstDetector`: is this more than usual (system F1)? Pure: time is an argument, memory is bounded.

The baseline is the median of the last sixty windows (an hour), each carried to now by what the day usually does
between then and now (`days`). A median is not moved by what lasts less than half of it, and takes a lasting new level
over whole (running medians: Tukey, Exploratory Data Analysis, 1977). A burst has to be above `factor` times the
baseline, and be no noise: five standard deviations of a Poisson process above it, on the scale on which that noise is
the same at every rate (2·√(n + 3/8): Anscombe, Biometrika 35, 1948), and four of the windows' own spread, as arrivals
come in clusters (median absolute deviation × 1.4826: Hampel, J. Am. Stat. Assoc. 69, 1974). It is over below the same
part of that way up that `end_factor` is of `factor`: where noise is wide, so is the distance between the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, sqrt
from statistics import median
from typing import Any

import msgspec

from mmcache.model.errors import ScaleError
from mmcache.scale.days import DAYS, PARTS, Days, short
from mmcache.scale.spec import BurstSpec
from mmcache.scale.window import Window

VERSION = 1
MEMORY = 60
"""Windows of which the baseline is the median."""
FEWEST = 5
"""Windows, before there is a baseline."""
POISSON_DEVIATIONS = 5.0
SPREAD_DEVIATIONS = 4.0
"""A day has some four thousand looks that say something new: noise would exceed three deviations five times a day, and
four once a week."""
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
    peaks: list[tuple[float, float]] = field(default_factory=list)
    """(end, highest mean), oldest first."""
    watched_since: float | None = None
    level: float | None = None
    spread: float = 0.0
    since: float | None = None
    below_since: float | None = None
    days: Days = field(default_factory=Days)


class BurstDetector:
    """`observe` at every look; one a few seconds is right, a few a window the least."""

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
        if state.version != VERSION:
            raise ScaleError(f"what was saved of the load is of version {state.version}, and this is {VERSION}")
        if not _sound(state):
            raise ScaleError("what was saved of the load is damaged: a number cannot be, or a list is too long")
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
            margin = self._margin(level)
            reason = "AboveUsual" if qps > level + margin else "Noise" if qps > spec.factor * level else "Usual"
            if state.since is None and reason == "AboveUsual":
                state.since, state.below_since = at, None
            elif state.since is not None:
                nearer = (spec.end_factor - 1) / (spec.factor - 1)
                reason = self._going_on(at, qps < level + nearer * margin)
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

    def _margin(self, level: float) -> float:
        """So much above the baseline is a burst, in requests a second: (factor - 1) baselines, and beyond noise."""
        seconds, spread = self._state.recent.covered, self._state.spread
        noise = ((sqrt(level * seconds + 3 / 8) + POISSON_DEVIATIONS / 2) ** 2 - 3 / 8) / seconds - level
        return max((self.spec.factor - 1) * level, noise, SPREAD_DEVIATIONS * spread)

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
        level = median(carried)
        state.level = short(level)
        state.spread = short(1.4826 * median(abs(one - level) for one in carried))

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
        state.samples, state.since, state.below_since = 0, None, None

    def _shift(self, seconds: float) -> None:
        state = self._state
        state.recent.shift(seconds)
        state.windows = [(middle + seconds, rate) for middle, rate in state.windows]
        state.peaks = [(end + seconds, peak) for end, peak in state.peaks]
        for name in ("at", "watched_since", "since", "below_since"):
            value = getattr(state, name)
            setattr(state, name, None if value is None else value + seconds)


def _sound(state: _State) -> bool:
    """Whether nothing in it is beyond what `observe` leaves there."""
    days = state.days
    times = [state.at, state.watched_since, state.since, state.below_since]
    times += [one[0] for one in (*state.recent.pieces, *state.windows, *state.peaks)]
    amounts = [state.window_seconds, state.quiet_seconds, state.samples, state.level or 0.0, state.spread]
    amounts += [*state.open, *days.open]
    amounts += [one for piece in state.recent.pieces for one in piece[1:]] + days.minutes
    amounts += [rate for _, rate in (*state.windows, *state.peaks, *days.fresh)]
    amounts += [rate for rates in days.usual.values() for rate in rates]
    return (
        all(abs(time) < _LARGEST for time in times if time is not None)
        and all(0 <= amount < _LARGEST for amount in amounts)
        and all(length > 0 for _, length, _ in state.recent.pieces)
        and {*days.usual, *(part for part, _ in days.fresh), max(0, days.part)} <= set(range(PARTS))
        and len(state.recent.pieces) <= MEMORY
        and max(len(state.windows), len(state.peaks), len(days.fresh), len(days.minutes)) <= MEMORY
        and max(map(len, days.usual.values()), default=0) <= DAYS
    )
