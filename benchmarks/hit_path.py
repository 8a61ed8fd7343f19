"""A hit on a small value in memory, policy and engine bookkeeping included, beside other caches in one run."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import cachebox
import cachetools
import moka_py
import numpy as np
import theine

from mmcache import Cache, Key
from mmcache.lab.bench import main
from mmcache.lab.measure import interleave
from mmcache.lab.table import Progress, Result, Row, Table

ENTRIES = 1000
Get = Callable[[Key], Any]
VALUES: dict[str, Callable[[int], Any]] = {"text": "value {}".format, "array": lambda i: np.full(8, i, np.float32)}
TARGETS = {"cachebox": 1.5, "cachetools+lock": 0.25}
"""Ours must take at most this many times as long."""


def peers(values: dict[Key, Any]) -> dict[str, Get]:
    """The lookups of other caches, each filled with `values` and holding all of them."""
    memoized = lru_cache(maxsize=2 * ENTRIES)(values.__getitem__)
    box = cachebox.LRUCache(2 * ENTRIES)
    tools: cachetools.LRUCache[Key, Any] = cachetools.LRUCache(2 * ENTRIES)
    tiny = theine.Cache(2 * ENTRIES)
    moka: moka_py.Moka[Key, Any] = moka_py.Moka(2 * ENTRIES)
    lock = threading.Lock()
    for key, value in values.items():
        memoized(key)
        box[key] = tools[key] = value
        tiny.set(key, value)
        moka.set(key, value)

    def locked(key: Key) -> Any:
        with lock:  # without it, two threads corrupt the order list
            return tools.get(key)

    return {
        "dict": values.get,
        "lru_cache": memoized,
        "cachebox": box.get,
        "cachetools+lock": locked,
        "theine": tiny.get,
        "moka": moka.get,
    }


def looped(get: Get, keys: Sequence[Key]) -> Callable[[], None]:
    """One pass over `keys`."""

    def run() -> None:
        for key in keys:
            get(key)

    return run


def looped_over_nothing(keys: Sequence[Key]) -> Callable[[], None]:
    """What the loop itself costs; it is part of every figure."""

    def run() -> None:
        for _ in keys:
            pass

    return run


def threaded(get: Get, keys: Sequence[Key], threads: int, passes: int) -> Callable[[], None]:
    """`passes` passes over `keys`, shared out over `threads` threads."""

    def work() -> None:
        for _ in range(passes // threads):
            for key in keys:
                get(key)

    def run() -> None:
        crew = [threading.Thread(target=work) for _ in range(threads)]
        for one in crew:
            one.start()
        for one in crew:
            one.join()

    return run


class HitPath(Table):
    """ns per hit on one thread, throughput on two."""

    name = "bench-hit_path"
    title = "What does a hit in memory cost?"
    remark = (
        "The target is for small values. An array misses it by design: each hit makes a new read-only view, which "
        "costs numpy itself about 30 ns, while the peers hand out the one mutable object, which any caller can change "
        "for all others. Ours includes the policy's bookkeeping (recency ring, exact counter), a deadline check and "
        "the check for invalidations by other processes."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds, seconds = (7, 0.05) if quick else (21, 0.15)
        single: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        scaling: dict[str, list[float]] = {}
        for seed, (kind, make) in itertools.product(seeds, VALUES.items()):
            with Cache(memory="64MiB") as cache:
                keys = [cache.key(f"text {i}", modality="text", signature="bench-1") for i in range(ENTRIES)]
                values = {key: make(i) for i, key in enumerate(keys)}
                for key, value in values.items():
                    cache.put(key, value)
                random.Random(seed).shuffle(keys)
                gets: dict[str, Get] = {"ours/peek": cache.peek, "ours/get": cache.get, **peers(values)}
                calls = {name: looped(get, keys) for name, get in gets.items()}
                calls["no call"] = looped_over_nothing(keys)
                took = interleave(calls, rounds=rounds, per=ENTRIES, progress=progress)
                for name, timing in took.items():
                    single.setdefault(f"{kind}/{name}", []).extend(timing.scaled(1e9))
                for ours, peer in itertools.product(("ours/peek", "ours/get"), TARGETS):
                    ratios.setdefault(f"{kind}/{ours}÷{peer}", []).extend(took[ours].over(took[peer]))
                for name in ("ours/peek", "ours/get", *TARGETS):
                    passes = 2 * round(seconds / (2 * ENTRIES * took[name].median))
                    pair = {str(n): threaded(gets[name], keys, n, passes) for n in (1, 2)}
                    both = interleave(pair, rounds=max(5, rounds // 2), once=True, progress=progress)
                    scaling.setdefault(f"{kind}/{name}", []).extend(both["1"].over(both["2"]))
        rows = [Row.of(name, f"{name}: one hit, one thread", "ns", "lower", ns) for name, ns in single.items()]
        rows += [
            Row.of(pair, f"{pair}: time of one hit", "x", "lower", values, target=TARGETS[pair.split("÷")[1]])
            for pair, values in ratios.items()
        ]
        rows += [
            Row.of(
                f"{name}, 2 threads", f"{name}: throughput of two threads ÷ that of one", "x of one", "higher", values,
                target=0.9 if "ours" in name else None,
            )
            for name, values in scaling.items()
        ]  # fmt: skip
        real = (
            f"{ENTRIES} entries, keys in random order, every peer in its own documented call",
            "values: a short string; 8 float32, which ours hands out as a new read-only view and peers as the object",
        )
        return Result(self.name, quick, tuple(seeds), real, (), tuple(rows))


if __name__ == "__main__":
    sys.exit(main(HitPath()))
