"""`Board`: where somebody decides: canary, promote, roll back. Each is one switch, seen by every process."""

from __future__ import annotations

from collections.abc import Callable

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import RolloutConflictError, RolloutError
from mmcache.rollout.records import Records
from mmcache.rollout.report import Report
from mmcache.rollout.report import decode as decode_report
from mmcache.rollout.state import State, check_name, decode

REPORT = ".report"
DAMAGED = ".damaged"
"""What follows a rollout's name in the name of its report, and of a damaged state that was set aside."""


class Board:
    """Changes are compare-and-set: of two at once the first counts and the other raises `RolloutConflictError`.

    Every method raises `TierError` where the records cannot be reached, `RolloutError` for a rollout that does not
    exist or is damaged.
    """

    def __init__(self, records: Records, clock: Clock | None = None) -> None:
        self._records = records
        self._clock: Clock = clock or SystemClock()

    def names(self) -> list[str]:
        """Of all rollouts."""
        return self._records.names()

    def state(self, name: str) -> State:
        """As stored now."""
        return self._read(name)[1]

    def report(self, name: str) -> Report:
        """What processes have said; the last second may be missing."""
        return decode_report(self._records.read(check_name(name) + REPORT))

    def canary(self, name: str, version: str, percent: float, *, revision: int | None = None) -> State:
        """See `State.canary`. `revision`: only if this is still the state's."""
        return self._change(name, revision, lambda state, now: state.canary(version, percent, now))

    def promote(self, name: str, *, force: bool = False, revision: int | None = None) -> State:
        """See `State.promote`."""
        return self._change(name, revision, lambda state, now: state.promote(now, force=force))

    def rollback(self, name: str, *, revision: int | None = None) -> State:
        """See `State.rollback`."""
        return self._change(name, revision, lambda state, now: state.rollback(now))

    def _change(self, name: str, revision: int | None, change: Callable[[State, float], State]) -> State:
        raw, state = self._read(name)
        if revision is not None and state.revision != revision:
            raise _conflict(name, state)
        changed = change(state, self._clock.wall())
        if not self._records.swap(name, raw, changed.encode()):
            raise _conflict(name, self._read(name)[1])
        return changed

    def _read(self, name: str) -> tuple[bytes, State]:
        raw = self._records.read(check_name(name))
        if raw is None:
            known = ", ".join(self.names()) or "none"
            raise RolloutError(
                f"there is no rollout {name} here (there are: {known}); a program makes it, cache.rollout({name!r}, …)"
            )
        try:
            return raw, decode(raw)
        except RolloutError as error:
            raise RolloutError(f"{name}: {error}; the next program that uses it sets it aside and goes on") from error


def _conflict(name: str, state: State) -> RolloutConflictError:
    beside = f", {state.candidate} gets {state.percent:g} %" if state.candidate else ""
    return RolloutConflictError(
        f"somebody else changed {name} first: revision {state.revision}, {state.stable} is stable{beside}; look again "
        "and decide anew"
    )
