"""Looking where things are now: in a thread of its own, one look at a time, not too often."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mmcache import forks
from mmcache.tiers.valkey.limit import Limit

_EVERY_SECONDS = 0.1
"""Between the beginnings of two looks."""


class Look:
    """`look()` runs when somebody needs it; who cannot go on without it waits, all for the same one."""

    def __init__(self, look: Callable[[], None], monotonic: Callable[[], float]) -> None:
        """`look` raises nothing."""
        self._look, self._monotonic = look, monotonic
        self._lock = forks.Lock()
        self._running: threading.Event | None = None
        self._next = float("-inf")
        self.count = 0

    def soon(self) -> None:
        """Look, unless that was just done; do not wait for it."""
        if self._monotonic() >= self._next:
            self._begin()

    def now(self, limit: Limit) -> bool:
        """Look and wait. Whether a look was finished meanwhile; not, where the last one was just now."""
        done = self._running or self._begin()
        return done is not None and done.wait(max(0.0, limit.left()))

    def renew(self) -> None:
        """In a forked child, where the thread is not."""
        self._running = None

    def _begin(self) -> threading.Event | None:
        with self._lock:
            if self._running is not None:
                return self._running
            now = self._monotonic()
            if now < self._next:
                return None
            self._next = now + _EVERY_SECONDS
            done = threading.Event()
            try:
                threading.Thread(target=self._run, args=(done,), name="mmcache-look", daemon=True).start()
            except RuntimeError:  # the interpreter ends, or there are too many threads
                return None
            self._running = done
        return done

    def _run(self, done: threading.Event) -> None:
        try:
            self._look()
        finally:
            self.count += 1
            with self._lock:
                if self._running is done:
                    self._running = None
            done.set()
