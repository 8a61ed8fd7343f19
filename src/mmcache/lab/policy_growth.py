"""Whether a policy's work grows with the number of blocks: the same requests against few blocks and against many."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import numpy as np

from mmcache.lab.replay import policy_named
from mmcache.model.block import Facts
from mmcache.model.key import PART_BYTES, Key

FEW, MANY, POPULAR = 1000, 100_000, 50
REQUESTS = 2000
"""Of one call."""
_FACTS = Facts(1)


def seconds(names: Sequence[str], blocks: Sequence[int], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Processor seconds a request by policy and number of blocks, a sample a round; all of them in turn in each round.

    Processor time, because one call is shorter than the turn that another program may take in between.
    """
    calls = {(name, count): requests(name, count) for name in names for count in blocks}
    found: dict[tuple[str, int], list[float]] = {one: [] for one in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for one, call in calls.items():
            start = time.process_time()
            call()
            found[one].append((time.process_time() - start) / REQUESTS)
    return found


def requests(name: str, blocks: int) -> Callable[[], None]:
    """A callable that asks the policy `name`, which knows `blocks`, for `REQUESTS` requests of a steady state.

    Four in five touch one of `POPULAR` blocks, which every policy keeps; one stores a new block and takes the first
    victim. So the work is the same for few blocks and for many, unless the policy makes it more.
    """
    policy, random = policy_named(name), np.random.default_rng(0)
    numbers = iter(range(1 << 62))
    held = [_key(next(numbers)) for _ in range(blocks)]
    for place, key in enumerate(held):
        policy.add(key, _FACTS, place / 10)
    popular = held[-POPULAR:]
    ranks = cycle((random.zipf(1.2, 50_000) % POPULAR).tolist())
    moments = iter(range(blocks, 1 << 62))

    def call() -> None:
        for place, rank in enumerate(islice(ranks, REQUESTS)):
            now = next(moments) / 10
            if place % 5:
                policy.touch(popular[rank], now)
                continue
            new = _key(next(numbers))
            policy.add(new, _FACTS, now)
            policy.drop(next(key for key in policy.victims(now) if key != new))

    return call


def _key(number: int) -> Key:
    return Key(bytes(PART_BYTES), number.to_bytes(PART_BYTES, "big"))
