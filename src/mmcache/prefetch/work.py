"""What is to be brought, in which order, and again after a failure; and how a computation hears that it should stop.

The queue and the retries are pure: time is an argument.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from mmcache.model.key import Key

MOST_SESSIONS = 16
"""Of those that are expected to ask for one block; more are not counted."""


class Cancelled(BaseException):
    """Raised by a computation that `cancelled()` told to stop. Nobody's `except Exception` takes it; the cache lets
    whoever waits for the same key compute it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A block that may be asked for."""

    key: Key
    hop: int
    probability: float
    since: float
    """When the visit was made that it follows from."""
    due: float
    """Not before."""
    sessions: frozenset[Hashable] = frozenset()
    """Who is expected to ask for it."""
    lag: float = 1.0
    """Lookups until they do, in the mean."""
    stopped: int = 0
    """How often it was begun and cancelled."""


@dataclass(slots=True, eq=False)
class Work:
    """A task under way."""

    task: Task
    asked: Callable[[Work], bool]
    """Whether it should stop."""
    ttl: float
    """Seconds that what is computed stays."""
    joined: list[Hashable] = field(default_factory=list)
    """Sessions that wait for it, the first of them: it must not stop."""
    thread: int = 0
    """Native id of the thread that it runs in, while that is lowered."""
    niceness: int = 0
    """What that thread had before."""
    stop: bool = field(default=False)
    """It was told to; that is never taken back."""

    def joins(self, session: Hashable) -> None:
        """`session` waits for it, too."""
        if len(self.joined) < MOST_SESSIONS and session not in self.joined:
            self.joined.append(session)


_under_way: ContextVar[Work | None] = ContextVar("mmcache_speculation", default=None)


@contextmanager
def speculating(work: Work) -> Iterator[None]:
    """What runs inside is done for nobody who waits yet."""
    token = _under_way.set(work)
    try:
        yield
    finally:
        _under_way.reset(token)


speculative = _under_way.get
"""The work that the running code is done for; None: somebody waits for it."""


def cancelled() -> bool:
    """Whether the running computation is speculative, and a real request needs the machine: then raise `Cancelled`.

    False in any computation that somebody waits for, so a model may ask between its steps whoever calls it.
    """
    work = _under_way.get()
    return work is not None and work.asked(work)


class Queue:
    """At most `most` tasks, one a key; the most probable are kept."""

    def __init__(self, most: int, stale: float) -> None:
        """stale: seconds after which a task is worth nothing."""
        self._most, self._stale = most, stale
        self._tasks: dict[Key, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def offer(self, task: Task) -> None:
        """Add it, or what is newer about its key."""
        known = self._tasks.get(task.key)
        if known is not None:
            task = replace(
                task, hop=min(task.hop, known.hop), lag=min(task.lag, known.lag),
                probability=max(task.probability, known.probability),
                since=max(task.since, known.since), due=max(task.due, known.due), stopped=known.stopped,
                sessions=task.sessions | known.sessions if len(known.sessions) < MOST_SESSIONS else known.sessions,
            )  # fmt: skip
        self._tasks[task.key] = task
        if len(self._tasks) > self._most:
            del self._tasks[min(self._tasks.values(), key=_value).key]

    def take(self, now: float) -> Task | None:
        """The best one that is due: what is asked for first, then the most probable."""
        for key in [task.key for task in self._tasks.values() if now - task.since >= self._stale]:
            del self._tasks[key]
        due = [task for task in self._tasks.values() if task.due <= now]
        if not due:
            return None
        best = min(due, key=lambda task: (task.lag, -task.probability, -task.since))
        return self._tasks.pop(best.key)

    def drop(self, key: Key) -> None:
        """Somebody asked for it: too late."""
        self._tasks.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._tasks.clear()


def _value(task: Task) -> tuple[float, float]:
    return task.probability, task.since


class Retries:
    """When a key that failed may be tried again: exponential back-off with jitter, so that what failed together is not
    tried together; after so many tries it is left alone for the longest back-off."""

    MOST = 4096
    """Keys that are remembered."""

    def __init__(self, tries: int, first: float, longest: float, seed: int) -> None:
        self._tries, self._first, self._longest = tries, first, longest
        self._random = random.Random(seed)
        self._failed: OrderedDict[Key, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def may(self, key: Key, now: float) -> bool:
        """Whether it may be tried."""
        return now >= self.due(key)

    def due(self, key: Key) -> float:
        """When it may be tried, as `now`; 0 where it did not fail."""
        return self._failed.get(key, (0, 0.0))[1]

    def failed(self, key: Key, now: float) -> float | None:
        """It was tried and failed: when to try again; None: it was given up."""
        count = self._failed.pop(key, (0, 0.0))[0] + 1
        given_up = count >= self._tries
        back_off = min(self._longest, self._first * 2.0 ** min(count - 1, 60)) * (0.5 + 0.5 * self._random.random())
        due = now + (self._longest if given_up else back_off)
        self._failed[key] = (0 if given_up else count, due)
        if len(self._failed) > self.MOST:
            self._failed.popitem(last=False)
        return None if given_up else due

    def succeeded(self, key: Key) -> None:
        """It works."""
        self._failed.pop(key, None)
