"""The memory tier's read path in plain Python, and the choice between it and the compiled twin.

A hit is a dict read, a deadline check, a ring append and a counter: each one C call under the interpreter lock, so
threads need no lock of ours and the count is exact (the lossy ring is Caffeine's read buffer). A free-threaded build
switches the lock on again when it imports the compiled twin, which does not declare to run without; with the plain
twin alone, counts there are lower bounds.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
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

Sampled = tuple[Key, int, Context]
"""A hit's key, its Unix time in nanoseconds, and a copy of the context that it happened in."""

Sink = Callable[[Sampled], object]

SEED = 0x9E3779B97F4A7C15
"""Also in the compiled twin: both sample the same hits."""

MASK = (1 << 64) - 1


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
        """Record and count a hit that was found without this index; who found it tells who wants to hear of it."""

    def sample(self, every: int, sink: Sink | None, /) -> None:
        """Call `sink((key, Unix time in ns, copy of the context))` for one in `every` hits of `peek`, `fresh`, `get`;
        None ends it, and then a hit pays for one comparison.

        The gaps are uniform over 1 to 2 every - 1, so their mean is `every` and no periodic load is always, or never,
        sampled; 1 takes all. The sink runs in the reading thread and must be short, and must not read this index. An
        `Exception` of it is dropped. Raises `ValueError` for `every` below 1 or above 2**31 - 1.
        """

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

        self._sink: Sink | None = None
        self._every = 1
        turn = never = sys.maxsize  # the first hit with this number or a later one is sampled

        def sampled(key: Key, n: int) -> None:
            nonlocal turn
            sink = self._sink
            if n < turn or sink is None:  # another thread took it; no lock, which a fork could leave locked for ever
                return
            if self._every > 1:
                turn = n + self._gap()
            with contextlib.suppress(Exception):
                sink((key, time.time_ns(), copy_context()))

        def sample(every: int, sink: Sink | None, /) -> None:
            nonlocal turn
            if not 1 <= every < 1 << 31:
                raise ValueError("one in `every` hits: every must be from 1 to 2**31 - 1")
            turn = never
            self._every, self._random, self._sink = every, SEED, sink
            if sink is not None:
                turn = 0 if every == 1 else self.hits + self._gap() - 1

        def touched(key: Key, /) -> None:
            nonlocal turn
            ring(key)
            n = count()
            if n >= turn and self._every > 1:
                turn = n + self._gap()  # its turn, and nobody is told

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
            n = count()
            if make is not None:
                value = make()
            if n >= turn:
                sampled(key, n)
            return value

        def peek(key: Key, /, default: Any = None) -> Any:
            return find(key, default, DEADLINE)

        def fresh(key: Key, /, default: Any = None) -> Any:
            return find(key, default, DUE)

        def get(key: Key, /, default: Any = None) -> Any:
            value = find(key, missing, DEADLINE)
            return below(key, default) if value is missing else value

        self.touched, self.peek, self.fresh, self.get, self.sample = touched, peek, fresh, get, sample

    def _gap(self) -> int:
        """Hits until the next sample."""
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & MASK  # Knuth's MMIX
        return 1 + ((self._random >> 32) * (2 * self._every - 1) >> 32)

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
