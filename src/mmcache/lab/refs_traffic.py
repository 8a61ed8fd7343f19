"""Threads on a real cache for table `refs`: answers made of features made of sources, in too little room."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mmcache.cache import Cache
from mmcache.model.event import Evicted
from mmcache.refs.base import References

SOURCES, FEATURES, ANSWERS = 60, 120, 120
VALUE_BYTES = 4096
WORDS = {
    "dangling": "links of held answers whose child was evicted",
    "found": "dangling links reported",
    "missed": "dangling links not reported",
    "invented": "links reported that do not dangle",
    "stale": "stale blocks read, of {hits:,.0f} hits in all",
    "over": "over the memory limit",
    "left": "parents left when everything was invalidated",
    "evicted": "blocks evicted meanwhile",
}
NEVER = {"missed", "invented", "stale", "over", "left"}


class Traffic:
    """Answers made of features made of sources, in a cache with room for a third; says what was read that was stale."""

    def __init__(self, references: References, seed: int) -> None:
        self.references = references
        blocks = SOURCES + FEATURES + ANSWERS
        self.limit = blocks * (VALUE_BYTES + 2600) // 3
        self.cache = Cache(memory=self.limit, references=self.references)
        self.keys = [self.cache.key(np.array([n]), modality="tensor", signature="lab:refs") for n in range(2 * blocks)]
        rng = random.Random(seed)
        self.children: dict[int, list[int]] = {n: [] for n in range(SOURCES)}
        self.children |= {SOURCES + n: rng.sample(range(SOURCES), 3) for n in range(FEATURES)}
        features = range(SOURCES, SOURCES + FEATURES)
        self.children |= {SOURCES + FEATURES + n: rng.sample(features, 3) for n in range(ANSWERS)}
        self.versions, self.settled = [0] * SOURCES, [0] * SOURCES
        self.stale: list[int] = []
        self.read: list[int] = []
        self.over: list[int] = []

    def make(self, n: int) -> Any:
        """The block `n`: an array whose first places are the versions that it was made from."""

        def compute() -> Any:
            made = np.full(VALUE_BYTES // 8, -1, np.int64)
            if n < SOURCES:
                made[n] = self.versions[n]
            else:
                self.cache.link(self.keys[n], [self.keys[child] for child in self.children[n]])
                for child in self.children[n]:
                    other = self.make(child)
                    made = np.where((made >= 0) & (other >= 0), np.minimum(made, other), np.maximum(made, other))
            return made

        return self.cache.get_or_compute(self.keys[n], compute)

    def change(self, n: int) -> None:
        """One thread only."""
        self.versions[n] += 1
        self.cache.invalidate(self.keys[n])
        self.settled[n] = self.versions[n]

    def look(self, n: int) -> None:
        """Read `n`; note whether it is older than an invalidation that was over before."""
        least = np.array(self.settled)
        found = self.cache.peek(self.keys[n])
        if found is not None:
            self.read.append(n)
            made = found[:SOURCES]
            if ((made != -1) & (made < least)).any():
                self.stale.append(n)
        if self.cache.stats().tiers["memory"].bytes > self.limit:
            self.over.append(n)

    def fill(self, n: int) -> None:
        """Store a block that nobody needs."""
        self.cache.put(self.keys[len(self.children) + n], np.zeros(VALUE_BYTES, np.uint8))


def under_eviction(references: References, seed: int, calls: int) -> dict[str, float]:
    """What happened to one tracker under `calls` of each of five threads; the keys are those of `WORDS`."""
    traffic = Traffic(references, seed)
    answers = range(SOURCES + FEATURES, SOURCES + FEATURES + ANSWERS)
    failures: list[BaseException] = []

    def work(number: int, act: Callable[[random.Random], object], times: int) -> None:
        rng = random.Random(f"{seed} {number}")
        try:
            for _ in range(times):
                act(rng)
        except BaseException as error:  # noqa: BLE001 - raised below, by the thread that waits
            failures.append(error)

    def ask(rng: random.Random) -> None:
        traffic.make(rng.choice(answers))
        traffic.look(rng.choice(answers))

    acts: list[tuple[Callable[[random.Random], object], int]] = [
        *[(ask, calls)] * 3,
        (lambda rng: traffic.change(rng.randrange(SOURCES)), calls // 4),
        (lambda rng: traffic.fill(rng.randrange(len(traffic.children))), calls),
    ]
    threads = [threading.Thread(target=work, args=(n, *one)) for n, one in enumerate(acts)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # so that the threads meet in the middle of things
    try:
        with traffic.cache.events.feed(1 << 20) as feed:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            evicted = sum(isinstance(event, Evicted) for event in feed.drain())
    finally:
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]
    held = {key for key in traffic.keys if traffic.cache.peek(key) is not None}
    numbers = {n for n, key in enumerate(traffic.keys) if key in held}
    linked = {(n, child) for n in numbers & traffic.children.keys() for child in traffic.children[n]}
    true = {(traffic.keys[n], traffic.keys[child]) for n, child in linked if child not in numbers}
    found = set(traffic.references.dangling(held.__contains__))
    traffic.cache.invalidate([*traffic.keys, *traffic.references.parents()])
    result = {
        "dangling": 100 * len(true) / max(1, len(linked)),
        "found": float(len(found)),
        "missed": float(len(true - found)),
        "invented": float(len(found - true)),
        "stale": float(len(traffic.stale)),
        "hits": float(len(traffic.read)),
        "over": float(len(traffic.over)),
        "left": float(len(traffic.references.parents())),
        "evicted": float(evicted),
    }
    traffic.cache.close()
    return result
