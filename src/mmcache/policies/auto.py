"""`auto`: keep what saves most seconds per byte held, as learned from the cache's own traffic.

**What is optimal.** Between two uses of a block lies an interval: keeping the block through it costs its size times
the time, and saves its cost at the end. Given a price for a byte held over a request, each interval is a stopping
problem of its own (keep on, or give up), whether or not earlier ones were kept. Its index is that of Gittins ("Bandit
processes and dynamic allocation indices", J. R. Stat. Soc. B 41, 1979; for caching by way of Whittle's relaxation,
J. Appl. Probab. 25A, 1988): the best ratio, over all moments to give up, of the hits to be expected by then to the
time the block will be held for them. Times cost, over size, it is the score; the lowest goes.

The ratio is the hit density of Beckmann, Chen and Cidon ("LHD: improving cache hit rate by maximizing hit density",
NSDI 2018), but with the best moment to give up instead of the one at which the cache happened to evict, and learned
also from what was evicted. A block that a loop will need soon gains worth as it ages; where reuse only fades with
age, the order is that of LRU; before anything is known, that of hyperbolic caching (Blankstein, Sen and Freedman,
ATC 2017) times cost over size.

**What is learned.** Blocks are of 48 classes: how often used (1, 2, 3, 4-7, 8-15, … 64 or more times) and how long
between the last two uses. For each class and octave of age, in requests: reuses, and the time that blocks spent there
(exposure, counted exactly), both fading. Reuses over exposure is the hazard; where a class saw little, it is drawn
to the product of the margins, these to the hazard of all, that to 0.55 over the age. Three ghosts a block, 10 bytes
each, carry uses, last use and class of what went, so that a block that comes back is known (as in 2Q and ARC), and
what the cache does not hold is learned from all the same.

**What it costs.** A put or a use is O(1) amortised: one call in known/16 (at least 128) passes over all blocks and
ghosts, some milliseconds for a million.
A block takes under 64 bytes beside the map of keys. Victims are the worst of a sample: a pool of the 16 lowest seen,
joined by 64 drawn at each eviction (Psounis and Prabhakar, "Efficient randomized web-cache replacement schemes using
samples from past eviction times", IEEE/ACM ToN 10, 2002), and the block that came last: so admission and eviction are
one decision. Deterministic given the seed; no clock of its own; its capacity is nothing that it needs to know.

Blocks that others refer to (`Facts.references`) go last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Protocol

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.auto_python import PythonCore
from mmcache.settings import accelerated


class Core(Protocol):
    """What both twins do."""

    def add(self, key: Key, facts: Facts, now: float, /) -> None:
        """See `Policy.add`."""

    def touch(self, key: Key, now: float, /) -> None:
        """See `Policy.touch`."""

    def drop(self, key: Key, /) -> None:
        """See `Policy.drop`."""

    def victims(self, now: float, /) -> Iterator[Key]:
        """See `Policy.victims`."""

    def explain(self, key: Key, now: float, /) -> Mapping[str, float]:
        """See `Explains.explain`."""


def make_core(seed: int = 1, clock: int = 0) -> Core:
    """The compiled core where it was built, else the plain one. `clock`: requests counted before the first."""
    if accelerated():
        try:
            compiled = import_module("mmcache.policies._auto")
        except ImportError:
            pass
        else:
            made: Core = compiled.Core(seed, clock)
            return made
    return PythonCore(seed, clock)


class Auto:
    """See the module. `seed`: of the draws among victims."""

    refuses = True
    """The newest block may be the first to go."""

    def __init__(self, seed: int = 1) -> None:
        core = self._core = make_core(seed)
        # Bound here, past the methods below, which only forward: a call less for each request.
        for name in ("add", "touch", "drop", "victims", "explain"):
            setattr(self, name, getattr(core, name))

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`. Of a known key it sets the facts and is no use."""
        self._core.add(key, facts, now)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        self._core.touch(key, now)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        self._core.drop(key)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`. An order ends early when a block comes or goes meanwhile."""
        return self._core.victims(now)

    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        """See `Explains.explain`: score = seconds per byte times hits per request (a huge factor more if needed)."""
        return self._core.explain(key, now)

    def __sizeof__(self) -> int:
        """Bytes held, without the keys themselves."""
        return object.__sizeof__(self) + self._core.__sizeof__()
