"""`Lifetime`: until when a block may be served."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from mmcache.model.block import Facts
from mmcache.model.key import Key


@runtime_checkable
class Lifetime(Protocol):
    """Three pure methods; all times are monotonic seconds. Called under one lock, never on the hot path."""

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """When a block stored now ends; None = never."""

    def used(self, key: Key, now: float) -> None:
        """A block was used. Uses may arrive late, some are lost, and `key` need not be known."""

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """A block left after `age` seconds; `stale` = it had expired. Feedback for adaptive lifetimes."""
