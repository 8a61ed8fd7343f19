"""`OwedDrops`: keys that a tier failed to forget. It is not asked for them before it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mmcache.forks import Lock
from mmcache.model.key import Key

CAPACITY = 65_536
"""Beyond so many debts that cannot be settled the tier is not read at all by this process."""


class OwedDrops:
    """The debts of one tier. Remembered by this process only."""

    def __init__(self, drop: Callable[[list[Key]], int]) -> None:
        self._drop = drop
        self._lock = Lock()
        self._keys: set[Key] = set()

    def add(self, keys: Iterable[Key]) -> None:
        """The tier may still hold older values of `keys`."""
        with self._lock:
            self._keys.update(keys)

    def refused(self, key: Key) -> None:
        """The tier refused a newer value of `key`: an older one must go, now or later."""
        self.add([key])
        self.settle([key])

    def forgive(self, key: Key) -> None:
        """The tier took a newer value of `key`."""
        if self._keys:
            with self._lock:
                self._keys.discard(key)

    def settle_all(self) -> int:
        """Try to drop all that is owed; how many keys are owed still."""
        with self._lock:
            self._settle(set(self._keys))
            return len(self._keys)

    def settle(self, keys: Iterable[Key]) -> set[Key]:
        """Those of `keys` that the tier must not be asked for, after trying to drop them once more."""
        if not self._keys:
            return set()
        keys = set(keys)
        if len(self._keys) > CAPACITY and self.settle_all() > CAPACITY:
            return keys
        with self._lock:
            self._settle(keys & self._keys)
            return keys & self._keys

    def _settle(self, due: set[Key]) -> None:
        if due:
            try:
                self._drop(list(due))
            except Exception:  # noqa: BLE001 - a plug-in's tier may raise anything; it is owed still
                return
            self._keys -= due
