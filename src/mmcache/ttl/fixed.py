"""One lifetime for all blocks."""

from __future__ import annotations

import math

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.ttl.spread import share_of


class FixedTTL:
    """Every block lives `seconds`; None = for ever.

    `jitter` (0 … below 1) shortens each lifetime by up to that share, so that blocks stored together do not all expire
    together. How much is drawn from the key, not from chance: all processes agree, and a test can predict it.
    """

    def __init__(self, seconds: float | None = None, jitter: float = 0.0) -> None:
        """Raises `SettingsError` for a lifetime that is negative or not finite, or a jitter out of bounds."""
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise SettingsError(f"a lifetime is a finite number of seconds >= 0, or None for ever; not {seconds}")
        if not 0.0 <= jitter < 1.0:
            raise SettingsError(f"jitter is a share from 0 to below 1, not {jitter}")
        self.seconds = seconds
        self.jitter = jitter

    def deadline(self, key: Key, facts: Facts, now: float) -> float | None:
        """See `Lifetime.deadline`."""
        if self.seconds is None:
            return None
        if not self.jitter:
            return now + self.seconds
        return now + self.seconds * (1.0 - self.jitter * share_of(key))

    def used(self, key: Key, now: float) -> None:
        """Nothing is learned."""

    def ended(self, key: Key, age: float, stale: bool) -> None:
        """Nothing is learned."""
