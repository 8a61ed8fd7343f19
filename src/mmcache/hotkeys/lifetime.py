"""`LifetimeWatch`: how long keys of a running cache will stay hot, and what follows from that."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mmcache import forks
from mmcache.hotkeys.heard import Heard
from mmcache.hotkeys.lifetime_counts import MOST_KEYS, KeyCounts
from mmcache.hotkeys.lifetime_drift import NO_DRIFT, Drift, look
from mmcache.hotkeys.lifetime_tiers import LifetimeTiers, Outlook, Outlooks
from mmcache.lifespan.file import load
from mmcache.lifespan.inputs import Floats
from mmcache.lifespan.model import LifeModel
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.event import Drifted, Failed
from mmcache.model.key import Key

if TYPE_CHECKING:
    from mmcache.cache import Cache

MOST_ASKED = 16_384
"""Keys that the model is asked about after each interval, the most used first."""
BATCH = 256
MOST_CLAIMED = 512
"""Keys of an interval whose outcome is waited for."""
MOST_PRELOADED = 256
"""Blocks brought into memory after each interval."""
_AT_ONCE = 32
LEAST_CLAIMS = 400
"""Outcomes before it is said whether the model pays."""
MEMORY = 4000.0
"""Outcomes over which errors are averaged."""
GIVE_UP = 28
"""Intervals in a row of no trust, until it stops."""

State = Literal["watching", "withheld", "stopped"]


class _Claim(NamedTuple):
    due: int
    keys: list[Key]
    said: npt.NDArray[np.float64]
    was: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LifetimeStatus:
    """How it stands."""

    state: State
    """`withheld`: nothing is expected of any key, so that all are on demand."""
    reason: str
    retrain: bool
    """Whether a new model is asked for: `mmcache learn lifetime`, then `adopt`."""
    keys: int
    """That are counted."""
    preload: int
    on_demand: int
    bypass: int
    preloaded: int
    """Blocks brought into memory, so far."""
    drift: Drift
    judged: int
    """Claims whose outcome is known."""
    error: float
    """Mean squared error (Brier) of what the model said; NaN before there is an outcome."""
    rule_error: float
    """Of the rule "as hot as today", with its own frequencies."""


class LifetimeWatch:
    """Counts uses by intervals, asks a model after each, and fills the table that `LifetimeTiers` reads.

    `pump` does all the work, and is what the thread calls; call it yourself where there must be none. What the model
    said is compared with what came. Nothing is expected of any key while inputs have drifted (KL from the training's
    days) or while the model is no better than "as hot as today"; after a week of that it stops by itself.
    A forked child counts anew. Memory: 65 536 keys, 270 bytes each at 28 intervals.
    """

    fork_order = 0

    def __init__(
        self,
        cache: Cache,
        model: LifeModel | str | os.PathLike[str],
        tiers: LifetimeTiers | None = None,
        *,
        preload: bool = True,
        drift: float | None = None,
        most_keys: int = MOST_KEYS,
        period_seconds: float = 5.0,
        threaded: bool = True,
    ) -> None:
        """model: from `mmcache learn lifetime`, or its file. tiers: whose deciders the cache has. preload: bring what
        is surely hot from lower tiers into memory. drift: nats (KL) from which on inputs have drifted, as published
        0.35; None = what the model's own history says, of which one moment in twenty would have been an alarm.
        Raises as `lifespan.file.load`, and `SettingsError`."""
        if not (math.isfinite(period_seconds) and period_seconds > 0):
            raise SettingsError(f"period_seconds is a number of seconds above 0, not {period_seconds!r}")
        if drift is not None and not drift > 0:
            raise SettingsError(f"drift is a number of nats above 0, not {drift!r}")
        self._cache, self._most_keys, self._period = cache, most_keys, period_seconds
        self._outlooks = Outlooks() if tiers is None else tiers.outlooks
        self._preload, self._threaded, self._threshold = preload, threaded, drift
        self._lock = forks.Lock()
        self._stop, self._stopped = threading.Event(), ""
        self._thread: threading.Thread | None = None
        self._zero = cache.clock.wall() - cache.clock.monotonic()
        self._model = model if isinstance(model, LifeModel) else load(model)
        self._preloaded = 0
        self._begin()
        self._heard = Heard(cache)
        cache.below.closers.append(self.close)
        forks.join(self)
        self._launch()

    def _begin(self) -> None:
        self._outlooks.hours = self._model.scale.hours
        self._counts = KeyCounts(self._model, self._most_keys)
        self._claims: deque[_Claim] = deque()
        self._drift = NO_DRIFT
        self._judged, self._errors = 0, (math.nan, math.nan)
        self._rule = np.full((2, 2), 0.5)  # of what was cold, and hot: how often hot later; and how many, from 1
        self._rule[:, 1] = 1.0
        self._vain = 0
        self._withheld = ""

    def adopt(self, model: LifeModel | str | os.PathLike[str]) -> None:
        """Go on with a new model, also where it had stopped. Uses are counted anew, since another model mostly counts
        by other groups; what days may differ by stays at most as it was. Raises as `lifespan.file.load`, and
        `SettingsError` after `close`."""
        found = model if isinstance(model, LifeModel) else load(model)
        with self._lock:
            if self._stop.is_set():
                raise SettingsError("this watch is closed: open another")
            if self._stopped:
                self._heard = Heard(self._cache)
            self._model, self._stopped = found.after(self._model), ""
            self._outlooks.replace({})
            self._begin()
            self._launch()

    def describe(self, key: Key, *, text: npt.ArrayLike | None = None, image: int | None = None) -> None:
        """Say what `key` is about: a text embedding, from the model that the training's came from, and a 64-bit image
        hash. Neither is kept: 32 numbers are. Not for the hot path: it waits for `pump`. Raises `InvalidInputError`."""
        width = np.shape(text)[-1] if text is not None and np.ndim(text) else None
        if width is not None and width != self._model.width:
            raise SettingsError(f"this model takes text embeddings of {self._model.width} numbers, not {width}")
        with self._lock:
            if self._counts.interval is None:  # else `pump` alone says that an interval is over
                self._roll(None)
            self._counts.describe(key, self._tenant(key), text, image)

    def expect(self, key: Key) -> tuple[float, float] | None:
        """Hours, and the probability that `key` will still be hot after them; None: nobody knows."""
        found = self._outlooks.get(key, self._cache.clock.monotonic())
        if found is None:
            return None
        near, far = self._outlooks.hours
        return (far, found.far) if found.tier == "preload" else (near, found.near)

    def status(self) -> LifetimeStatus:
        """How it stands now."""
        tiers = [one.tier for _, one in self._outlooks.items()]
        return LifetimeStatus(
            "stopped" if self._stopped else "withheld" if self._withheld else "watching",
            self._stopped or self._withheld, bool(self._withheld), len(self._counts),
            tiers.count("preload"), tiers.count("on demand"), tiers.count("bypass"), self._preloaded, self._drift,
            self._judged, *self._errors,
        )  # fmt: skip

    def pump(self, now: float | None = None) -> bool:
        """Take in what was used, and ask the model where an interval ended; whether it was asked.

        now: Unix seconds; by default by the cache's monotonic clock, so that a stepped clock ends no interval.
        """
        if self._stopped:
            return False
        try:
            with self._lock:
                ended = self._pump(now)
            if ended and self._preload:
                self._bring()
        except (MMCacheError, ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError) as error:
            self._cache.events.emit(Failed("lifetime", f"stopped: {error!r}"))
            with self._lock:
                self._end(f"it failed: {error}")
            return False
        return ended

    def due(self) -> bool:
        """Whether an interval has ended since the last `pump`."""
        return self._counts.interval is None or self._now(None) > self._counts.interval

    def _now(self, now: float | None) -> int:
        moment = self._zero + self._cache.clock.monotonic() if now is None else now
        return math.floor(moment / self._model.scale.interval_seconds)

    def _roll(self, now: float | None) -> int:
        return self._counts.roll(self._now(now))

    def _pump(self, now: float | None) -> bool:
        fresh = self._counts.interval is None
        uses, weight, _ = self._heard.drain()
        if fresh:
            self._roll(now)
        # What is heard now was used since the last time: it belongs to the interval that was under way then.
        for key, _ in uses:
            self._counts.use(key, self._tenant(key), weight)
        if not self._roll(now):
            return False
        self._judge()
        limits = self._model.tolerances if self._threshold is None else self._threshold
        self._drift = look(self._counts.histograms(), self._model.baseline, limits)
        if self._counts.watched >= self._model.scale.day:
            self._ask()
        return True

    def _tenant(self, key: Key) -> str:
        scope = self._cache.scopes.find(key)
        return "" if scope is None else f"{scope.tenant}\0{scope.namespace}"

    def _judge(self) -> None:
        """Compare claims that are due with what came; the model is judged before the rule learns from it."""
        interval = self._counts.interval
        assert interval is not None
        while self._claims and self._claims[0].due <= interval:
            claim = self._claims.popleft()
            if claim.due < interval:
                continue  # nobody looked when it was due
            came = self._counts.hot_now(claim.keys)
            rule = self._rule[claim.was.astype(int), 0]
            share = min(1.0, len(came) / MEMORY if self._judged >= MEMORY else len(came) / (self._judged + len(came)))
            self._errors = tuple(  # type: ignore[assignment]
                fresh if math.isnan(before) else before + share * (fresh - before)
                for before, fresh in zip(
                    self._errors,
                    (float(((said - came) ** 2).mean()) for said in (claim.said, rule)),
                    strict=True,
                )
            )
            self._judged += len(came)
            for was in (0, 1):
                found = came[claim.was == bool(was)]
                count = min(MEMORY, self._rule[was, 1] + len(found))
                self._rule[was, 0] += (found - self._rule[was, 0]).sum() / count if len(found) else 0.0
                self._rule[was, 1] = count

    def _ask(self) -> None:
        slots = self._counts.candidates(MOST_ASKED)
        said = self._said(slots)
        keys, known, day = self._counts.keys(slots), self._counts.known(slots), self._model.scale.day
        interval = self._counts.interval
        assert interval is not None
        if len(slots):
            drawn = np.sort(np.random.default_rng(interval).permutation(len(slots))[:MOST_CLAIMED])
            hot = self._counts.day(slots[drawn]) >= self._model.scale.hot_uses
            due = interval + self._model.scale.horizons[0]
            self._claims.append(_Claim(due, [keys[n] for n in drawn], said[drawn, 0].astype(np.float64), hot))
        self._trust()
        if self._withheld:
            self._outlooks.replace({})
            return
        until = self._cache.clock.monotonic() + 2 * self._model.scale.interval_seconds
        self._outlooks.replace({
            key: Outlook(near, far, until, age >= day)
            for key, (near, far), age in zip(keys, said.tolist(), known.tolist(), strict=True)
        })  # fmt: skip

    def _said(self, slots: npt.NDArray[np.intp]) -> Floats:
        model, parts = self._model, []
        for at in range(0, len(slots), BATCH):
            shown, about = self._counts.asked(slots[at : at + BATCH])
            parts.append(model.calibration.probability(model.logits(shown, about)))
        return np.concatenate(parts) if parts else np.empty((0, 2), np.float32)

    def _trust(self) -> None:
        before, drift = self._withheld, self._drift
        mine, rule = self._errors
        if drift.drifted:
            self._withheld = f"inputs have drifted: {drift.name} by {drift.divergence:.2f} nats"
        elif self._judged >= LEAST_CLAIMS and mine > rule:
            self._withheld = f"no better than 'as hot as today': error {mine:.3f} against {rule:.3f}"
        else:
            self._withheld = ""
        if drift.drifted and not before.startswith("inputs"):
            self._cache.events.emit(Drifted(f"lifetime {drift.name}", drift.divergence, drift.threshold))
        self._vain = self._vain + 1 if self._withheld else 0
        if self._vain >= GIVE_UP:
            self._end(f"{self._withheld}; not trusted for {self._vain} intervals in a row")

    def _bring(self) -> None:
        """Preload, outside the lock: a lower tier may take its time."""
        cache = self._cache
        if not cache._store.lower or cache.mode != "on" or self._stopped:
            return
        wanted = [key for key, one in self._outlooks.items() if one.tier != "bypass"]
        held = self._held(wanted)
        sure = [key for key, one in self._outlooks.items() if one.tier == "preload"]
        absent = [key for key in sure[: 4 * MOST_PRELOADED] if key not in held]
        for at in range(0, min(len(absent), MOST_PRELOADED), _AT_ONCE):
            if self._stop.is_set():
                return
            keys = absent[at : at + _AT_ONCE]
            cache.answers.heat(keys)
            self._preloaded += len(self._held(keys))
            if len(self._held(held)) < len(held):
                return  # what came pushed out what will be hot as well: there is no room for more

    def _held(self, keys: Iterable[Key]) -> set[Key]:
        """Those that memory holds."""
        return {key for key in keys if self._cache.answers.resident(key).frame is not None}

    def close(self) -> None:
        """End; nothing is expected any more. Idempotent."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._end("closed")

    def _end(self, why: str) -> None:
        """Nobody listens any more. Under the lock."""
        if not self._stopped:
            self._stopped = why
        self._outlooks.replace({})
        self._heard.close()

    def _launch(self) -> None:
        """Under the lock."""
        if self._threaded and self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="mmcache-lifetime", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self.pump()
            with self._lock:
                if self._stopped:
                    self._thread = None
                    return

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """A child counts anew, in a thread of its own; what is expected stays as long as it may."""
        if not child or self._stop.is_set() or self._stopped:
            return
        self._thread = None
        self._heard.forget()
        self._begin()
        self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
