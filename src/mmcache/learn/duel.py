"""Whether a forecast may stand in for the window: two small caches without contents see the same uses, one has it."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import numpy as np

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.forecast import Floats
from mmcache.policies.freshness import HeatFreshness

MOST_BLOCKS = 4096
"""Of one shadow; a cache that holds more is imitated by a sample of its keys."""
MEMORY = 64
"""Steps over which hits and errors are averaged, exponentially."""
PATIENCE = 16
"""Steps before a forecast is believed."""
_FACTS = Facts(1)


class _Shadow:
    """The keys that a cache of so many blocks would hold."""

    def __init__(self, policy: HeatFreshness) -> None:
        self.policy = policy
        self.hits = 0
        self._held: set[Key] = set()

    def use(self, key: Key, now: float, blocks: int) -> None:
        if key in self._held:
            self.hits += 1
            self.policy.touch(key, now)
            return
        self.policy.add(key, _FACTS, now)
        self._held.add(key)
        while len(self._held) > blocks:
            gone = next(other for other in self.policy.victims(now) if other != key or blocks < 1)
            self.policy.drop(gone)
            self._held.discard(gone)


class Duel:
    """Hits of both shadows, and errors of both expectations; each forecast is judged before it is learned from.

    A forecast can be nearer to the truth than the window's count and still choose worse victims, so what counts is
    what a cache loses: hits, in shadows driven by the policy itself ("Cliffhanger" and others have used such shadows:
    Cidon et al., NSDI 2016). They hold a hashed sample of the keys where there are many (SHARDS: Waldspurger et al.,
    FAST 2015). `error` is the mean |ln(1 + expected) − ln(1 + actual)| (prequential: Dawid, 1984).
    """

    def __init__(self, like: HeatFreshness) -> None:
        """Shadows have the settings of `like`."""
        self._like = like
        self._begin(share=1)

    def _begin(self, share: int) -> None:
        self._share = share
        like, window = self._like, self._like.window
        self._shadows = {
            name: _Shadow(
                HeatFreshness(
                    alpha=like.alpha, tau=like.tau, seconds=window.seconds, events=max(1, window.passes // share)
                )
            )
            for name in ("forecast", "window")
        }
        self._uses = 0
        self.verdicts = 0
        self._means: dict[str, float] = {}

    def use(self, key: Key, now: float, blocks: int) -> None:
        """One use of a block, in a cache that holds `blocks`."""
        while blocks > MOST_BLOCKS * self._share:
            self._begin(2 * self._share)
        if crc32(key) % self._share:
            return
        self._uses += 1
        for shadow in self._shadows.values():
            shadow.use(key, now, max(1, blocks // self._share))

    def foresee(self, uses: Mapping[Key, float]) -> None:
        """What the forecast says now: believed by one shadow at once."""
        self._shadows["forecast"].policy.foresee(uses)

    def error(self, actual: Floats, forecast: Floats, window: Floats) -> None:
        """All [n], a block each: uses that came, and both expectations, made before."""
        for name, expected in (("forecast", forecast), ("window", window)):
            self._note(f"{name}_error", float(np.abs(np.log1p(expected) - np.log1p(actual)).mean()))

    def step_ended(self) -> None:
        """Count the hits since the last step."""
        if not self._uses:
            return
        for name, shadow in self._shadows.items():
            self._note(f"{name}_hits", shadow.hits / self._uses)
            shadow.hits = 0
        self._uses = 0
        self.verdicts += 1

    def _note(self, name: str, value: float) -> None:
        before = self._means.get(name, value)
        self._means[name] = before + (value - before) / min(MEMORY, self.verdicts + 1)

    @property
    def better(self) -> bool:
        """Whether the forecast hits more, and is not further from the truth."""
        means = self._means
        return (
            self.verdicts >= PATIENCE
            and means["forecast_hits"] > means["window_hits"]
            and means.get("forecast_error", 1.0) <= means.get("window_error", 0.0)
        )

    def report(self) -> Mapping[str, float]:
        """Hit ratios and errors of both by name, and from how many steps they are."""
        return {"verdicts": float(self.verdicts), **self._means}
