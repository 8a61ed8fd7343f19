"""`Trace`: who asked for what and when, as arrays; what the blocks weigh and cost."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mmcache.model.block import Facts
from mmcache.model.key import PART_BYTES, Key

Ids = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TUNED_SHARE = 0.7
"""A policy may be tuned on this first share of a trace's requests; the rest is held out."""
_SCOPE = b"mmcache.lab.trace"[:PART_BYTES]


@dataclass(frozen=True)
class Trace:
    """n requests for m blocks. A block has one size and one cost, so that a hit never changes what is held."""

    name: str
    ids: Ids
    """uint32 [n]: the block asked for, numbered by first appearance."""
    times: Floats
    """float64 [n]: seconds, not falling."""
    sizes: Integers
    """int64 [m]: bytes held."""
    costs: Floats
    """float64 [m]: seconds that computing it takes; 1 each where only hits are counted."""
    kinds: Integers
    """int64 [m]: place in `modalities`."""
    owners: Integers
    """int64 [m]: place in `tenants`."""
    modalities: tuple[str, ...] = ("tensor",)
    tenants: tuple[str, ...] = ("default",)
    notes: tuple[str, ...] = ()
    """What a reader must know: what was missing in the file, what was assumed."""

    @staticmethod
    def of(
        name: str,
        keys: npt.ArrayLike,
        times: npt.ArrayLike | None = None,
        sizes: npt.ArrayLike | int = 1,
        *,
        notes: tuple[str, ...] = (),
    ) -> Trace:
        """A trace with cost 1 a block from keys (any integers) [n], seconds [n] and bytes [n] or one for all.

        A block whose size varies gets the largest; without times, a request comes every 10 ms.
        """
        ids = renumber(np.asarray(keys))
        count = int(ids.max()) + 1 if len(ids) else 0
        weights = np.zeros(count, np.int64)
        np.maximum.at(weights, ids, np.asarray(sizes, np.int64))
        seconds = np.asarray(np.arange(len(ids)) * 0.01 if times is None else times, np.float64)
        nobody = np.zeros(count, np.int64)
        return Trace(name, ids, seconds, weights, np.ones(count), nobody, nobody, notes=notes)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def footprint(self) -> int:
        """Bytes of all blocks together."""
        return int(self.sizes.sum())

    @property
    def seconds(self) -> float:
        """From the first request to the last."""
        return float(self.times[-1] - self.times[0]) if len(self) else 0.0

    def capacity(self, percent: float) -> int:
        """Bytes that are `percent` of the footprint."""
        return int(self.footprint * percent / 100)

    @property
    def tuned(self) -> slice:
        """The requests that a policy may be tuned on."""
        return slice(0, int(len(self) * TUNED_SHARE))

    @property
    def held_out(self) -> slice:
        """The requests that it may not."""
        return slice(int(len(self) * TUNED_SHARE), len(self))

    @cached_property
    def keys(self) -> list[Key]:
        """[m] keys that look like real ones: the digests are hashes."""
        digest = hashlib.blake2b
        return [
            Key(_SCOPE, digest(number.to_bytes(8, "little"), digest_size=PART_BYTES).digest())
            for number in range(len(self.sizes))
        ]

    @cached_property
    def facts(self) -> list[Facts]:
        """[m] facts as a policy gets them. Attention entropies are in no trace, so there are none."""
        columns = (self.sizes.tolist(), self.costs.tolist(), self.kinds.tolist(), self.owners.tolist())
        return [
            Facts(size, cost, self.modalities[kind], self.tenants[owner])
            for size, cost, kind, owner in zip(*columns, strict=True)
        ]

    def first(self, count: int) -> Trace:
        """The first `count` requests, and the blocks that they ask for."""
        if count >= len(self):
            return self
        ids = self.ids[:count]
        kept = int(ids.max()) + 1 if count else 0
        return replace(
            self, ids=ids, times=self.times[:count], sizes=self.sizes[:kept], costs=self.costs[:kept],
            kinds=self.kinds[:kept], owners=self.owners[:kept],
        )  # fmt: skip

    def sampled(self, rate: float) -> Trace:
        """The requests for a hashed `rate` (0…1) of the blocks (SHARDS: Waldspurger et al., FAST 2015).

        Replayed in `rate` × the memory it behaves like the whole trace, up to the noise of the sample.
        """
        if rate >= 1:
            return self
        drawn = uniform(np.arange(len(self.sizes)), 1) < rate
        asked = drawn[self.ids]
        ids = renumber(self.ids[asked])
        blocks = self.ids[asked][np.unique(ids, return_index=True)[1]] if len(ids) else np.zeros(0, np.uint32)
        return replace(
            self, ids=ids, times=self.times[asked], sizes=self.sizes[blocks], costs=self.costs[blocks],
            kinds=self.kinds[blocks], owners=self.owners[blocks],
        )  # fmt: skip


def renumber(keys: npt.NDArray[np.generic]) -> Ids:
    """Keys [n] → their numbers by first appearance, uint32 [n]."""
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.uint32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.uint32)
    numbered: Ids = rank[places.reshape(-1)]
    return numbered


def uniform(numbers: npt.NDArray[np.generic], stream: int) -> Floats:
    """float64 [n] in 0…1, drawn from each number by a hash (SplitMix64; Steele et al., 2014): the same for ever.

    Streams are independent of one another.
    """
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(stream)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Floats = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 2.0**53
    return drawn
