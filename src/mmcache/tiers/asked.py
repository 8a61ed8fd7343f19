"""The memory tier's policy, asked so that one that raises fails no caller: an event says so, and the tier goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from mmcache.model.block import Facts
from mmcache.model.event import Event, Failed, Why
from mmcache.model.key import Key


class Evictor(Protocol):
    """What the memory tier needs of a policy (see `policies.base.Policy`)."""

    def add(self, key: Key, facts: Facts, now: float) -> None: ...
    def touch(self, key: Key, now: float) -> None: ...
    def drop(self, key: Key) -> None: ...
    def victims(self, now: float) -> Iterator[Key]: ...


class Asked:
    """`add` and `victims` raise what the policy raises, for the caller to refuse the block; all else never raises."""

    def __init__(self, policy: Evictor, emit: Callable[[Event], None]) -> None:
        self.add, self.victims = policy.add, policy.victims
        self.refuses = bool(getattr(policy, "refuses", False))
        """Whether it may yield the block just added (see `policies.base.Policy`)."""
        self._touch, self._drop, self._emit = policy.touch, policy.drop, emit
        self._explain: Callable[[Key, float], Mapping[str, float]] = getattr(policy, "explain", lambda key, now: {})

    def failed(self, error: Exception) -> None:
        """Say that the policy raised."""
        self._emit(Failed("policy", f"it raised {error!r}"))

    def touch_all(self, keys: Iterable[Key], now: float) -> None:
        """These were used."""
        touch = self._touch
        try:
            for key in keys:
                touch(key, now)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; uses may be lost
            self.failed(error)

    def drop(self, key: Key) -> None:
        """This one is gone."""
        try:
            self._drop(key)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; what it yields and is not held is skipped
            self.failed(error)

    def why(self, key: Key, now: float) -> Why:
        """What it says of a block."""
        try:
            return tuple(self._explain(key, now).items())
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; then there are no reasons
            self.failed(error)
            return ()
