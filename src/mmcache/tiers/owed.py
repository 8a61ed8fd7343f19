"""`OwedDrops`: keys that a tier failed to forget. It is not asked for them before it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mmcache.forks import Lock
from mmcache.model.key import Key

CAPACITY = 65_536
"""Beyond so many debts that cannot be settled the tier is not read at all by this process."""


class OwedDrops:
    """The debts of one tier. Remembered by this process only. The tier is asked without any lock: it may be slow."""

    def __init__(self, drop: Callable[[list[Key]], int]) -> None:
        self._drop = drop
        self._lock = Lock()
        self._keys: dict[Key, int] = {}
        """Each with the number of its latest debt: one that is added meanwhile is not settled with an earlier one."""
        self._count = 0

    def add(self, keys: Iterable[Key]) -> None:
        """The tier may still hold older values of `keys`."""
        with self._lock:
            for key in keys:
                self._count += 1
                self._keys[key] = self._count

    def refused(self, key: Key) -> None:
        """The tier refused a newer value of `key`: an older one must go, now or later."""
        self.add([key])
        self.settle([key])

    def forgive(self, key: Key) -> None:
        """The tier took a newer value of `key`."""
        if self._keys:
            with self._lock:
                self._keys.pop(key, None)

    def settle_all(self) -> int:
        """Try to drop all that is owed; how many keys are owed still."""
        self._settle(list(self._keys))
        return len(self._keys)

    def settle(self, keys: Iterable[Key]) -> set[Key]:
        """Those of `keys` that the tier must not be asked for, after trying to drop them once more."""
        if not self._keys:
            return set()
        keys = set(keys)
        if len(self._keys) > CAPACITY and self.settle_all() > CAPACITY:
            return keys
        self._settle(keys)
        with self._lock:
            return {key for key in keys if key in self._keys}

    def _settle(self, keys: Iterable[Key]) -> None:
        with self._lock:
            due = {key: self._keys[key] for key in keys if key in self._keys}
        if due:
            try:
                self._drop(list(due))
            except Exception:  # noqa: BLE001 - a plug-in's tier may raise anything; it is owed still
                return
            with self._lock:
                for key, number in due.items():
                    if self._keys.get(key) == number:
                        del self._keys[key]
