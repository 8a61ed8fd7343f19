"""`Countdown`: one callback after several others have come."""

from __future__ import annotations

from collections.abc import Callable

from mmcache.forks import Lock


class Countdown:
    """Calls `done` once, after `end` and after all that `one_more` gave out were called."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done, self._lock, self._left = done, Lock(), 1

    def one_more(self) -> Callable[[], None]:
        """To be called when one more thing has happened; further calls of it do nothing."""
        with self._lock:
            self._left += 1
        called = False

        def came() -> None:
            nonlocal called
            with self._lock:
                if called:
                    return
                called = True
            self.end()

        return came

    def end(self) -> None:
        """Nothing more is going to be waited for."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done()
