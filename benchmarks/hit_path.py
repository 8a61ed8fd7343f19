"""A hit on a small value in memory, policy and engine bookkeeping included, beside other caches in one run."""

from __future__ import annotations

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


def peers(values: dict[Key, Any]) -> dict[str, Get]:
    """The lookups of other caches, each filled with `values` and holding all of them."""
    memoized = lru_cache(maxsize=2 * ENTRIES)(values.__getitem__)
    box = cachebox.LRUCache(2 * ENTRIES)
    tools: cachetools.LRUCache[Key, Any] = cachetools.LRUCache(2 * ENTRIES)
    tiny, moka = theine.Cache(2 * ENTRIES), moka_py.Moka(2 * ENTRIES)
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

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds, passes = (9, 40) if quick else (31, 100)
        single: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        scaling: dict[str, list[float]] = {}
        for seed in seeds:
            with Cache(memory="64MiB") as cache:
                keys = [cache.key(f"text {i}", modality="text", signature="bench-1") for i in range(ENTRIES)]
                values = {key: np.full(8, i, np.float32) for i, key in enumerate(keys)}
                for key, value in values.items():
                    cache.put(key, value)
                random.Random(seed).shuffle(keys)
                gets: dict[str, Get] = {"ours/peek": cache.peek, "ours/get": cache.get, **peers(values)}
                calls = {name: looped(get, keys) for name, get in gets.items()}
                calls["empty loop"] = lambda keys=keys: [None for _ in keys]  # type: ignore[misc]
                took = interleave(calls, rounds=rounds, per=ENTRIES, progress=progress)
                for name, timing in took.items():
                    single.setdefault(name, []).extend(timing.scaled(1e9))
                for ours in ("ours/peek", "ours/get"):
                    for peer in ("cachebox", "cachetools+lock"):
                        ratios.setdefault(f"{ours}÷{peer}", []).extend(took[ours].over(took[peer]))
                for name in ("ours/peek", "ours/get", "cachebox", "cachetools+lock"):
                    pair = {str(n): threaded(gets[name], keys, n, passes) for n in (1, 2)}
                    both = interleave(pair, rounds=max(5, rounds // 3), once=True, progress=progress)
                    scaling.setdefault(name, []).extend(both["1"].over(both["2"]))
        targets = {"cachebox": 1.5, "cachetools+lock": 0.25}
        rows = [Row.of(f"hit/{name}", f"{name}: one hit, one thread", "ns", "lower", ns) for name, ns in single.items()]
        rows += [
            Row.of(
                f"ratio/{pair}", f"{pair}: time of one hit", "x", "lower", values, target=targets[pair.split("÷")[1]]
            )
            for pair, values in ratios.items()
        ]
        rows += [
            Row.of(
                f"2-threads/{name}", f"{name}: throughput of two threads ÷ that of one", "x", "higher", values,
                target=0.9 if name.startswith("ours") else None,
            )
            for name, values in scaling.items()
        ]  # fmt: skip
        real = (f"{ENTRIES} entries of 8 float32, keys in random order, every peer in its own documented call",)
        return Result(self.name, quick, tuple(seeds), real, (), tuple(rows))


if __name__ == "__main__":
    sys.exit(main(HitPath()))
