"""`Observer`: who is told of lookups, computations and writes while they are under way, to make spans of them.

The cache has none unless `Answers.observe` was given one (`telemetry.instrument` does), and then it costs what `begin`
costs for all that is not sampled. An observer never raises, and never blocks for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from mmcache.model.key import Key

if TYPE_CHECKING:
    from mmcache.lookup import Lookup
    from mmcache.scopes import Scope

Strategy = Literal["exact", "near", "row"]
"""How it was looked for. That a region was, or that what is found is stale, the key and the lookup say themselves."""


class Observer(Protocol):
    """One tracer."""

    def begin(self, key: Key | None = None) -> int:
        """Whether what begins now is to be recorded: its time in Unix nanoseconds, or 0.

        key: it follows from a lookup of that key, and is recorded where that was.
        """

    def looked_up(self, keys: Sequence[Key], looks: Sequence[Lookup], began: int, strategy: Strategy) -> None:
        """The lookups of one call have ended; `began` is not 0."""

    def computing(self, keys: Sequence[Key]) -> AbstractContextManager[object]:
        """Around a computation: its span is current, so that what the model calls is a child of it."""

    def stored(self, key: Key, scope: Scope, size: int, cost: float, kept: bool, began: int) -> None:
        """A put has ended; `began` is not 0. size: bytes of the frame. cost: seconds."""

    def invalidated(self, count: int, began: int) -> None:
        """That many keys are gone; `began` is not 0."""
