"""What became of blocks that are not here any more: so that a miss can be told apart, and explained."""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import TypeVar

from mmcache.forks import Lock
from mmcache.model.event import Event, Evicted, EvictReason, Expired, Invalidated, MissReason, Moved, Refused, Stored
from mmcache.model.key import Key

T = TypeVar("T")

GHOSTS = 65_536
"""Evicted keys remembered, to tell `evicted` from `absent`."""
REASONS = 4_096
"""Keys whose last refusal or departure is remembered with the policy's score."""


@dataclass(frozen=True, slots=True)
class Fate:
    """How a block left, or why it was not stored."""

    what: str
    """`evicted`, `expired`, `refused` or `invalidated`."""
    tier: str
    reason: str
    when: float
    """Monotonic seconds."""
    score: dict[str, float]
    """What the policy said of it at that time; empty where it gives no reasons."""


class Fates:
    """Bounded; safe under threads. The latest of each key counts."""

    def __init__(self) -> None:
        self._evicted: dict[Key, str] = {}
        """Whence, and why."""
        self._last: dict[Key, Fate] = {}
        self._lock = Lock()

    def note(self, event: Event, now: float) -> None:
        """Learn from an event."""
        match event:
            case Stored(key=key, tier=tier) | Moved(key=key, target=tier):
                self._forget(self._evicted, key)
                if tier == "memory":
                    self._forget(self._last, key)
            case Evicted(key=key):
                if event.reason is not EvictReason.PURGED:
                    self._keep(self._evicted, key, intern(f"evicted from {event.tier}: {event.reason.value}"), GHOSTS)
                self._remember(key, Fate("evicted", event.tier, event.reason.value, now, dict(event.why)))
            case Refused(key=key):
                self._remember(key, Fate("refused", event.tier, event.reason.value, now, dict(event.why)))
            case Expired(key=key):
                self._remember(key, Fate("expired", event.tier, "deadline", now, {}))
            case Invalidated(key=key):
                self._remember(key, Fate("invalidated", "all", "asked", now, {}))
            case _:
                pass

    def reason(self, key: Key) -> tuple[MissReason, str]:
        """Why `key` is not here, as far as is remembered: `evicted`, `expired`, or `absent`; and in a few words."""
        if (whence := self._evicted.get(key)) is not None:
            return MissReason.EVICTED, whence
        last = self._last.get(key)
        if last is None:
            return MissReason.ABSENT, ""
        if last.what == "expired":
            return MissReason.EXPIRED, f"expired in {last.tier}"
        return MissReason.ABSENT, f"refused by {last.tier}: {last.reason}" if last.what == "refused" else last.what

    def last(self, key: Key) -> Fate | None:
        """The latest refusal or departure of `key` since it was last stored in memory."""
        return self._last.get(key)

    def _remember(self, key: Key, fate: Fate) -> None:
        self._keep(self._last, key, fate, REASONS)

    def _forget(self, table: dict[Key, T], key: Key) -> None:
        if key in table:
            with self._lock:  # or who makes room meanwhile would see the table change under its hands
                table.pop(key, None)

    def _keep(self, table: dict[Key, T], key: Key, value: T, most: int) -> None:
        with self._lock:
            table.pop(key, None)
            table[key] = value
            if len(table) > most:
                table.pop(next(iter(table)), None)
