"""Which keys changed lately: what keeps a slow reader from bringing back what it read before."""

from __future__ import annotations

from collections.abc import Iterable

from mmcache.forks import Lock
from mmcache.model.key import Key


class Changes:
    """Which keys were put or dropped lately, so that a slow reader does not bring back what it read before."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._when: dict[Key, int] = {}
        self.now = 0
        """Counts changes; a reader notes it before it reads."""
        self._all = 0
        """When any of them may have changed."""

    def mark(self, keys: Iterable[Key] | None) -> None:
        """`keys` change now; None = nobody knows which."""
        with self._lock:
            if keys is None:
                self.now += 1
                self._all = self.now
            for key in keys or ():
                self.now += 1
                self._when.pop(key, None)
                self._when[key] = self.now
            while len(self._when) > self._capacity:
                del self._when[next(iter(self._when))]

    def since(self, key: Key, then: int) -> bool:
        """Whether `key` may have changed after `then`."""
        when = self._when.get(key)
        if self._all > then:
            return True
        return when > then if when is not None else self.now - then > self._capacity
