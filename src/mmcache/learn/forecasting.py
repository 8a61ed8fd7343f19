"""`forecast(cache)`: the LSTM of `heat-freshness` beside a running cache, for as long as it is worth its work."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from mmcache import forks
from mmcache.cache import Cache
from mmcache.learn.lstm import LSTMTrainer
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.policies.fair import FairShare
from mmcache.policies.freshness import HeatFreshness

GIVE_UP = 512
"""Steps (an eighth of the policy's window each) in a row without being better than the window, until it stops."""

State = Literal["learning", "trusted", "stopped"]


@dataclass(frozen=True)
class ForecastStatus:
    """How it stands."""

    state: State
    """`learning`: the policy uses its window; `trusted`: it uses the forecast; `stopped`: nothing is trained."""
    reason: str
    steps: int
    """Of the history, so far."""
    report: Mapping[str, float]
    """See `LSTMTrainer.report`."""


def forecast(cache: Cache, *, period_seconds: float = 1.0, seed: int = 0) -> Forecast:
    """Train a forecast of uses beside `cache`, whose policy is `heat-freshness`, and let it stand in for the window
    where it is measured better: `with forecast(cache): …`, or keep it and `close()` it; it ends with the cache.

    period_seconds: how often its thread looks for new uses; None of its work is done in a request. Raises
    `SettingsError` for a cache with another policy, or where torch is missing.
    """
    return Forecast(cache, period_seconds=period_seconds, seed=seed).start()


class Forecast:
    """A watcher. `pump` does all the work, and is what the thread calls; call it yourself where there must be none.

    It hears every use that the policy hears, hits in memory too, which it asks the memory tier to show. It stops by
    itself after `GIVE_UP` steps in a row in which the forecast was not better, or when training fails (an event says
    so); the policy is then as it was without. A forked child goes on without a forecast: start one there.
    """

    fork_order = 9

    def __init__(self, cache: Cache, *, period_seconds: float = 1.0, seed: int = 0) -> None:
        policy = cache._store.keeping.policy
        if isinstance(policy, FairShare):
            raise SettingsError("a forecast needs one policy for all; with tenants, each has a policy of its own")
        if not isinstance(policy, HeatFreshness):
            raise SettingsError(
                f"a forecast is for the policy heat-freshness, this cache has {type(policy).__name__}: open it with "
                'Cache(policy="heat-freshness")'
            )
        if policy.history is not None:
            raise SettingsError("somebody learns from this cache's policy already; close that before")
        self._cache, self._policy = cache, policy
        self._period_seconds = period_seconds
        self.trainer = LSTMTrainer(policy, seed=seed)
        self._steps = self._vain = 0
        self._stopped = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        close = weakref.WeakMethod(self.close)
        cache.below.closers.append(lambda: None if (end := close()) is None else end())
        forks.join(self)

    def start(self) -> Self:
        """Work in a thread from now on."""
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="mmcache-forecast", daemon=True)
            self._thread.start()
        return self

    def pump(self) -> int:
        """Look at the uses since the last time, and train where a step of the history ended; how many did."""
        if self._stopped:
            return 0
        try:
            self._cache._store.memory.maintain()  # shows which keys were hit in memory
            ended = self.trainer.step()
        except (MMCacheError, ArithmeticError, MemoryError, RuntimeError, ValueError) as error:  # torch's are such
            self._cache.events.emit(Failed("forecast", f"training stopped: {error!r}"))
            self._end(f"training failed: {error}")
            return 0
        self._steps += ended
        self._vain = 0 if self.trainer.trusted else self._vain + ended
        if self._vain >= GIVE_UP:
            self._end(f"not better than the window in {self._vain} steps")
        return ended

    def status(self) -> ForecastStatus:
        """How it stands now."""
        state: State = "stopped" if self._stopped else "trusted" if self.trainer.trusted else "learning"
        return ForecastStatus(state, self._stopped, self._steps, self.trainer.report())

    def close(self) -> None:
        """End; the policy goes back to its window. Idempotent."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._end("closed")

    def _run(self) -> None:
        self.trainer.use_one_core()
        while not self._stop.wait(self._period_seconds) and not self._stopped:
            self.pump()

    def _end(self, why: str) -> None:
        """Once: what it holds of the policy is given back."""
        if self._stopped:
            return
        self._stopped = why
        self._policy.history = None
        self.trainer.stop()

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """A child has no thread of it, and torch's threads are not in it."""
        if child and not self._stopped:
            self._thread = None
            self._end("this process is a forked child")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
