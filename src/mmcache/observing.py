"""`Observer`: who is told of lookups, computations and writes while they are under way, to make spans of them.

The cache has none unless `telemetry.instrument` gave it one, and then it costs what `begin` costs for all that is not
sampled. An observer never raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from mmcache.lookup import Lookup
from mmcache.model.key import Key

if TYPE_CHECKING:
    from mmcache.scopes import Scope


class Observer(Protocol):
    """One tracer."""

    def begin(self) -> int:
        """Whether what begins now is to be recorded: its time in Unix nanoseconds, or 0."""

    def looked_up(self, key: Key, look: Lookup, scope: Scope | None, began: int, strategy: str) -> None:
        """A lookup has ended. strategy: `exact`, `near`, `stale`, `region`, `row`."""

    def computing(self, keys: Sequence[Key], scope: Scope | None) -> AbstractContextManager[None]:
        """Around a computation: its span is current, so that what the model calls is a child of it."""

    def stored(self, key: Key, scope: Scope, size: int, kept: bool, began: int) -> None:
        """A put has ended. size: bytes of the frame."""

    def invalidated(self, count: int, began: int) -> None:
        """That many keys are gone."""
