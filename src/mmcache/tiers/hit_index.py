"""The memory tier's read path in plain Python, and the choice between it and the compiled twin.

A hit is a dict read, a deadline check, a ring append and a counter: each one C call under the interpreter lock, so
threads need no lock of ours and the count is exact (the lossy ring is Caffeine's read buffer).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.key import Key
from mmcache.settings import accelerated

Entry = tuple[object, Callable[[], object] | None, float | None, Any, int, float | None]
"""(constant value, or None and a maker of fresh values, deadline, frame, bytes charged, due for a refresh from)."""

DEADLINE, DUE = 2, 5
"""Places in an entry."""

Below = Callable[[Key, Any], Any]


class HitIndex(Protocol):
    """Reads a dict of entries. Both twins behave alike, also under threads."""

    @property
    def hits(self) -> int:
        """Exact number of hits."""

    seen: int
    """The shared sequence number that this process caught up with; while it differs, nothing is a hit."""

    def peek(self, key: Key, /, default: Any = None) -> Any:
        """The value held and alive, else `default`."""

    def fresh(self, key: Key, /, default: Any = None) -> Any:
        """The value held, alive and not yet due for a refresh, else `default`."""

    def get(self, key: Key, /, default: Any = None) -> Any:
        """The value held and alive, else `below(key, default)`."""

    def touched(self, key: Key, /) -> None:
        """Record and count a hit."""

    def drain(self) -> list[Key]:
        """Keys hit since the last drain, oldest first; what exceeded the capacity is lost."""


class PythonHitIndex:
    """The plain twin."""

    def __init__(
        self,
        entries: dict[Key, Entry],
        below: Below,
        capacity: int,
        clock: Callable[[], float],
        shared: memoryview | None = None,
        catch_up: Callable[[], object] | None = None,
    ) -> None:
        self._ring: deque[Key] = deque(maxlen=capacity)
        self._count = itertools.count()
        # Closures, because cell variables cost less than attributes.
        entry_of, ring, count, missing = entries.get, self._ring.append, self._count.__next__, object()

        def touched(key: Key, /) -> None:
            ring(key)
            count()

        self.seen = shared[0] if shared is not None else 0

        def find(key: Key, default: Any, place: int) -> Any:
            if shared is not None and shared[0] != self.seen:
                if catch_up is not None:
                    catch_up()
                if shared[0] != self.seen:
                    return default
            entry = entry_of(key)
            if entry is None:
                return default
            value, make, deadline, _, _, due = entry
            ends = deadline if place == DEADLINE else due
            if ends is not None and ends <= clock():
                return default
            ring(key)
            count()
            return value if make is None else make()

        def peek(key: Key, /, default: Any = None) -> Any:
            return find(key, default, DEADLINE)

        def fresh(key: Key, /, default: Any = None) -> Any:
            return find(key, default, DUE)

        def get(key: Key, /, default: Any = None) -> Any:
            value = find(key, missing, DEADLINE)
            return below(key, default) if value is missing else value

        self.touched, self.peek, self.fresh, self.get = touched, peek, fresh, get

    @property
    def hits(self) -> int:
        """Exact number of hits."""
        return int(repr(self._count)[len("count(") : -1])  # reads a `count` without advancing it

    def drain(self) -> list[Key]:
        """Keys hit since the last drain, oldest first."""
        keys = []
        for _ in range(len(self._ring)):  # hits go on meanwhile: bounded by the length seen first
            try:
                keys.append(self._ring.popleft())
            except IndexError:  # another pass drained it
                break
        return keys


def hit_index(
    entries: dict[Key, Entry],
    below: Below,
    capacity: int,
    clock: Clock,
    shared: memoryview | None = None,
    catch_up: Callable[[], object] | None = None,
) -> HitIndex:
    """The compiled index where it was built, else the plain one. `capacity` is rounded up to a power of two.

    `shared`: a view of one unsigned 64-bit number in shared memory (see `broadcast`); when it moved, `catch_up()` is
    called, which applies what happened and sets `seen`.
    """
    capacity = 1 << (max(1, capacity) - 1).bit_length()
    if accelerated():
        try:
            compiled = import_module("mmcache.tiers._hit_index")
        except ImportError:
            pass
        else:
            system = type(clock) is SystemClock  # a subclass may tell another time
            made: HitIndex = compiled.HitIndex(
                entries, below, capacity, None if system else clock.monotonic, shared, catch_up
            )
            return made
    return PythonHitIndex(entries, below, capacity, clock.monotonic, shared, catch_up)
