"""`Trial`: what this process sees of a candidate: counts, errors in a row, agreement; and when it is enough."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mmcache.forks import Lock
from mmcache.model.clock import Clock
from mmcache.model.errors import SettingsError, TierError
from mmcache.rollout.agreement import Agreement
from mmcache.rollout.board import REPORT
from mmcache.rollout.records import Records
from mmcache.rollout.report import Counts, decode
from mmcache.rollout.state import State

WINDOW = 50
LEAST = 20
"""Comparisons that `halt_below` looks back on, and needs."""
PUBLISH_SECONDS = 1.0
_TRIES = 5


def told(error: Exception) -> str:
    """What an error says, shortened."""
    try:
        return f"{error!r:.300}"
    except Exception:  # noqa: BLE001 - a model's own error, whose __repr__ may raise as well
        return type(error).__name__


class Trial:
    """Counts of one process, added to the others' about once a second."""

    def __init__(
        self,
        name: str,
        records: Records,
        agreement: Agreement,
        *,
        say: Callable[[str], None],
        share: float,
        halt_after: int,
        halt_below: float | None,
        draw: Callable[[], float],
        clock: Clock,
        models: Mapping[str, str],
    ) -> None:
        """Raises `SettingsError`."""
        if not (isinstance(share, int | float) and 0 <= share <= 1):
            raise SettingsError(f"compare_share is a share between 0 and 1, not {share!r}")
        if not (isinstance(halt_after, int) and halt_after >= 1):
            raise SettingsError(f"halt_after is a number of errors, 1 or more, not {halt_after!r}")
        if halt_below is not None and not (isinstance(halt_below, int | float) and math.isfinite(halt_below)):
            raise SettingsError(f"halt_below is a mean agreement, at most 1, not {halt_below!r}")
        self._record, self._records, self._agreement = name + REPORT, records, agreement
        self._say, self._draw, self._clock, self._models = say, draw, clock, models
        self._share, self._halt_after, self._halt_below = share, halt_after, halt_below
        self._lock = Lock()
        self._of: tuple[str, int] = ("", 0)
        self._counts: dict[str, Any] = {}
        """Fields of `Counts`: a dict, because each call of a trial adds to it."""
        self._told = False
        self._in_a_row = 0
        self._seen: deque[float] = deque(maxlen=WINDOW)
        self._published = float("-inf")
        self._process = os.getpid()

    @property
    def due(self) -> bool:
        """Whether what was counted should be told to the others."""
        return bool(self._counts) and self._clock.monotonic() - self._published >= PUBLISH_SECONDS

    def count(self, state: State, *fields: str) -> None:
        """Add one to these fields of the counts of the state's trial."""
        with self._lock:
            counts = self._turn(state)
            for name in fields:
                counts[name] = counts.get(name, 0) + 1

    def answered(self, state: State) -> None:
        """The candidate answered."""
        self.count(state, "candidate")
        self._in_a_row = 0

    def failed(self, state: State, error: Exception) -> str:
        """The candidate raised `error`, and the stable version did not; why it must be held now, or nothing."""
        self.count(state, "failed")
        with self._lock:
            current = self._of == (state.born, state.trial)
            self._in_a_row += current
            row = self._in_a_row if current else 0
        self._say(f"{state.candidate} failed, {state.stable} answered: {told(error)}")
        return f"it failed {row} times in a row, last with {told(error)}" if row >= self._halt_after else ""

    def compares(self) -> bool:
        """Whether this call is one to compare."""
        return self._share > 0.0 and self._draw() < self._share

    def compared(self, state: State, stable: Any, candidate: Any) -> str:
        """Both answered; why the candidate must be held now, or nothing."""
        try:
            found = self._agreement(stable, candidate)
        except Exception as error:  # noqa: BLE001 - the caller's own measure; the call it looks at has its answer
            self._say(f"the comparison of {state.stable} and {state.candidate} failed: {told(error)}")
            found = None
        value = 0.0 if found is None else found
        with self._lock:
            counts = self._turn(state)
            if self._of != (state.born, state.trial):
                return ""
            counts["compared"] = counts.get("compared", 0) + 1
            counts["differed"] = counts.get("differed", 0) + (found is None)
            counts["agreement"] = counts.get("agreement", 0.0) + value
            counts["lowest"] = min(counts.get("lowest", 1.0), value)
            self._seen.append(value)
            seen, mean = len(self._seen), math.fsum(self._seen) / len(self._seen)
        if self._halt_below is None or seen < LEAST or mean >= self._halt_below:
            return ""
        return f"its mean agreement with {state.stable} is {mean:.4f} over {seen} calls, below {self._halt_below:g}"

    def publish(self) -> None:
        """Add what was counted to the record of all processes; what could not be told is told later."""
        self._published = self._clock.monotonic()
        with self._lock:
            if self._process != os.getpid():  # what a forked child inherited is its parent's to tell
                self._process, self._counts = os.getpid(), {}
            (born, trial), fields = self._of, self._counts
            self._counts = {}
        if not fields and self._told:
            return
        counts = Counts(**fields)
        try:
            for _ in range(_TRIES):
                old = self._records.read(self._record)
                new = decode(old).plus(born, trial, counts, self._models).encode()
                if new == old or self._records.swap(self._record, old, new, patience=0.0, durable=False):
                    self._told = True
                    return
        except TierError:
            pass  # the watch says that the records cannot be reached
        with self._lock:
            if self._of == (born, trial):
                self._counts = msgspec.structs.asdict(counts + Counts(**self._counts))

    def _turn(self, state: State) -> dict[str, Any]:
        """The counts to add to: new ones where another trial has begun. What was not told of an older one is let go, as
        is what a call that began in it still says."""
        if state.born == self._of[0] and state.trial < self._of[1]:
            return {}
        if self._of != (state.born, state.trial):
            self._of = state.born, state.trial
            self._counts, self._in_a_row = {}, 0
            self._seen.clear()
        return self._counts
