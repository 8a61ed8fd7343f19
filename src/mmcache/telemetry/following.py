"""`Following`: what a lookup without a parent leads to is recorded in its trace, or not at all, as it was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mmcache.forks import Lock
from mmcache.model.key import Key
from mmcache.telemetry.parents import Parent

_MOST = 4096
_LONGEST = 600.0
"""Seconds after which nothing follows from a lookup any more."""


@dataclass(slots=True)
class _Missed:
    parent: Parent
    when: float
    computed: bool = False


class Following:
    """By key, from the lookup to the put. Bounded; the oldest are forgotten. Safe under threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._missed: dict[Key, _Missed] = {}

    def missed(self, keys: Iterable[Key], parent: Parent, now: float) -> None:
        """Lookups of `keys` are recorded; what they lead to belongs under `parent`. now: monotonic seconds."""
        with self._lock:
            for key in keys:
                self._missed.pop(key, None)
                self._missed[key] = _Missed(parent, now)
            while len(self._missed) > _MOST:
                del self._missed[next(iter(self._missed))]

    def __contains__(self, key: Key) -> bool:
        return key in self._missed

    def computing(self, keys: Iterable[Key], now: float) -> Parent | None:
        """Under which a computation of `keys` belongs; None = it is not recorded. Once for each lookup."""
        if not self._missed:
            return None
        with self._lock:
            found = None
            for key in keys:
                missed = self._missed.get(key)
                if missed is None:
                    continue
                if missed.computed or now - missed.when > _LONGEST:  # it was never stored: another lookup's, then
                    del self._missed[key]
                    continue
                missed.computed = True
                found = found or missed.parent
            return found

    def stored(self, key: Key) -> Parent | None:
        """Under which a put of `key` belongs. That is the last that follows."""
        with self._lock:
            missed = self._missed.pop(key, None)
        return None if missed is None else missed.parent

    def forget(self) -> None:
        """All of it."""
        with self._lock:
            self._missed.clear()
