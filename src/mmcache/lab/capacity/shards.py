"""How evenly the load of real keys falls on shards, and what copies of the hottest change. Pure."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from mmcache.model.key import PART_BYTES, Key
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.slots import SLOTS, slot_of

Integers = npt.NDArray[np.int64]
_SCOPE = b"mmcache.capacity"[:PART_BYTES]


def slots(blocks: int, seed: int) -> Integers:
    """int64 [blocks]: the slot of each, by the product's own names of keys."""
    names = Names("mm")
    salt = seed.to_bytes(8, "little")
    digests = (
        hashlib.blake2b(number.to_bytes(8, "little"), key=salt, digest_size=PART_BYTES).digest()
        for number in range(blocks)
    )
    return np.array([slot_of(names.head(Key(_SCOPE, digest))) for digest in digests], np.int64)


def imbalance(asked: Integers, slot: Integers, shards: int, hottest: int = 0) -> float:
    """The hottest shard's requests over the mean shard's.

    asked: int64 [blocks], how often each block is asked for; slot: int64 [blocks]; the `hottest` blocks are held by
    every shard, and asked for at any.
    """
    copied = np.zeros(len(asked), np.bool_)
    copied[np.argsort(-asked, kind="stable")[:hottest]] = True
    owner = slot * shards // SLOTS
    load = np.bincount(owner[~copied], weights=asked[~copied], minlength=shards) + asked[copied].sum() / shards
    return float(load.max() / load.mean())
