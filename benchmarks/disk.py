"""A hit and a put of a 1 MB array on the local disk, beside other caches in one run."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import diskcache
import joblib
import lmdb
import numpy as np
import numpy.typing as npt

from mmcache.lab.bench import main
from mmcache.lab.measure import Timing, interleave
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.settings import DiskSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier

SIDE = 512
Array = npt.NDArray[np.float32]


def raw(array: Array) -> memoryview:
    """The array's own memory as bytes."""
    return memoryview(array).cast("B")  # type: ignore[arg-type]


class Store(ABC):
    """One cache on a folder, used as its documentation says."""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Open it."""

    @abstractmethod
    def put(self, n: int, array: Array) -> None:
        """Store it under `n`."""

    @abstractmethod
    def get(self, n: int) -> Array:
        """The array stored under `n`, ready for numpy."""

    def flush(self) -> None:
        """Make it durable: by the cache's own means, else by the system's."""
        os.sync()

    @abstractmethod
    def close(self) -> None:
        """Release it."""


class Ours(Store):
    """Puts include the frame's checksum; `flush` syncs segments and index."""

    def __init__(self, folder: Path) -> None:
        self.tier = DiskTier(folder, DiskSettings(limit_bytes=8 << 30, free_space_floor=0))

    def put(self, n: int, array: Array) -> None:
        # The payload is the array's own memory, as the codecs' raw chain hands it over.
        assert self.tier.put([make_frame(KEYS[n], raw(array))], [None]) == [None]  # type: ignore[arg-type]

    def get(self, n: int) -> Array:
        found = self.tier.get([KEYS[n]])[0]
        assert isinstance(found, Found)
        return np.frombuffer(found.frame.payload, np.float32).reshape(SIDE, SIDE)

    def flush(self) -> None:
        self.tier.flush()

    def close(self) -> None:
        self.tier.close()


class DiskCache(Store):
    """Pickles into files beside sqlite; never syncs."""

    def __init__(self, folder: Path) -> None:
        self.cache = diskcache.Cache(str(folder), size_limit=8 << 30)

    def put(self, n: int, array: Array) -> None:
        self.cache.set(n, array)

    def get(self, n: int) -> Array:
        return self.cache.get(n)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.cache.close()


class Joblib(Store):
    """A memoized function; never syncs. A put is a call that computes nothing and stores."""

    def __init__(self, folder: Path) -> None:
        self.arrays: dict[int, Array] = {}

        def compute(n: int) -> Array:
            return self.arrays[n]

        self.call: Callable[[int], Any] = joblib.Memory(folder, verbose=0).cache(compute)

    def put(self, n: int, array: Array) -> None:
        self.arrays[n] = array
        self.call(n)

    def get(self, n: int) -> Array:
        return self.call(n)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.arrays.clear()


class RawLMDB(Store):
    """A transaction a put, synced by `flush`; a get is a view of the map, which ends with its transaction."""

    def __init__(self, folder: Path) -> None:
        self.env = lmdb.open(str(folder), map_size=8 << 30, sync=False)

    def put(self, n: int, array: Array) -> None:
        with self.env.begin(write=True) as txn:
            txn.put(KEYS[n], raw(array))

    def get(self, n: int) -> Array:
        with self.env.begin(buffers=True) as txn:
            return np.frombuffer(txn.get(KEYS[n]), np.float32).reshape(SIDE, SIDE)  # type: ignore[arg-type]

    def flush(self) -> None:
        self.env.sync(True)

    def close(self) -> None:
        self.env.close()


class Sqlite(Store):
    """A blob a row, a commit a put, WAL, `synchronous = NORMAL`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(folder / "db", isolation_level=None)
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = normal")
        self.db.execute("create table if not exists blocks (n integer primary key, data blob)")

    def put(self, n: int, array: Array) -> None:
        self.db.execute("insert or replace into blocks values (?, ?)", (n, raw(array)))

    def get(self, n: int) -> Array:
        (data,) = self.db.execute("select data from blocks where n = ?", (n,)).fetchone()
        return np.frombuffer(data, np.float32).reshape(SIDE, SIDE)

    def close(self) -> None:
        self.db.close()


STORES: dict[str, type[Store]] = {
    "ours": Ours, "diskcache": DiskCache, "joblib": Joblib, "lmdb": RawLMDB, "sqlite": Sqlite,
}  # fmt: skip


KEYS = [make_key(n) for n in range(64)]


def repeat_reads(folder: Path, arrays: Sequence[Array], rounds: int, progress: Progress) -> dict[str, Timing]:
    """Seconds per hit of blocks that this process has read before."""
    stores = {name: kind(folder / name) for name, kind in STORES.items()}
    calls = {}
    for name, store in stores.items():
        for n, array in enumerate(arrays):
            store.put(n, array)
        store.flush()
        for n, array in enumerate(arrays):
            assert np.array_equal(store.get(n), array)

        def run(get: Callable[[int], Array] = store.get) -> None:
            for n in range(len(arrays)):
                get(n)

        calls[name] = run
    took = interleave(calls, rounds=rounds, per=len(arrays), progress=progress)
    for store in stores.values():
        store.close()
    return took


def alternating(samples: dict[str, Callable[[], float]], rounds: int, progress: Progress) -> dict[str, Timing]:
    """Like `interleave`, for samples that prepare something first and time themselves."""
    seconds: dict[str, list[float]] = {name: [] for name in samples}
    for done in range(rounds):
        for name in samples if done % 2 else reversed(samples):
            seconds[name].append(samples[name]())
        progress(", ".join(samples), done + 1, rounds)
    return {name: Timing(name, tuple(took)) for name, took in seconds.items()}


def first_reads(folder: Path, count: int, rounds: int, progress: Progress) -> dict[str, Timing]:
    """Seconds per hit of a newly opened store (the page cache is warm), opening not included; every byte is read, by
    our checksum or by a sum that the caller does. Joblib is left out: its function lives in the process."""

    def sampler(name: str) -> Callable[[], float]:
        def sample() -> float:
            store = STORES[name](folder / name)
            start = time.perf_counter()
            for n in range(count):
                array = store.get(n)
                if name != "ours":
                    array.view(np.uint64).sum()
            took = (time.perf_counter() - start) / count
            store.close()
            return took

        return sample

    return alternating({name: sampler(name) for name in STORES if name != "joblib"}, rounds, progress)


def puts(folder: Path, arrays: Sequence[Array], rounds: int, progress: Progress) -> dict[str, Timing]:
    """Seconds per put into a new store, flushed and not; the disk is idle before each sample."""
    numbers = itertools.count()

    def sampler(kind: type[Store], flush: bool) -> Callable[[], float]:
        def sample() -> float:
            path = folder / f"put-{next(numbers)}"
            store = kind(path)
            os.sync()
            start = time.perf_counter()
            for n, array in enumerate(arrays):
                store.put(n, array)
            if flush:
                store.flush()
            took = (time.perf_counter() - start) / len(arrays)
            store.close()
            shutil.rmtree(path)
            return took

        return sample

    samples = {f"{name}+flush": sampler(kind, True) for name, kind in STORES.items()}
    samples |= {name: sampler(kind, False) for name, kind in STORES.items()}
    return alternating(samples, rounds, progress)


class Disk(Table):
    """µs per hit, MB/s per put, as ratios to peers."""

    name = "bench-disk"
    title = "What do a hit and a put of 1 MB cost on disk?"
    remark = (
        "The target for puts is three times diskcache's throughput, durable on flush: met where both flush. Where "
        "diskcache does not flush, its bytes are in the page cache only; that row, and the one where neither flushes, "
        "fall short by the time that sealing takes (a checksum of every byte) and ours starting to write back early. "
        "Raw LMDB without a flush is faster than ours: it keeps no checksums."
    )
    default_seeds = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        count, rounds = (32, 7) if quick else (64, 21)
        took: dict[str, dict[str, list[float]]] = {"repeat": {}, "first": {}, "put": {}}
        faster: dict[str, dict[str, list[float]]] = {"repeat": {}, "first": {}, "put": {}}
        for seed in seeds:
            rng = np.random.default_rng(seed)
            arrays = [rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(count)]
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                parts = {
                    "repeat": repeat_reads(folder, arrays, rounds, progress),
                    "first": first_reads(folder, count, rounds, progress),
                    "put": puts(folder, arrays, max(5, rounds // 2), progress),
                }
            for part, timings in parts.items():
                for name, timing in timings.items():
                    took[part].setdefault(name, []).extend(timing.samples)
                    ours = "ours+flush" if "+flush" in name else "ours"
                    if name != ours:
                        faster[part].setdefault(f"{name}÷{ours}", []).extend(timing.over(timings[ours]))
                both = timings.get("ours+flush")
                if both is not None:  # the unequal race, too: ours on the disk, the peer in the page cache
                    faster[part].setdefault("diskcache÷ours+flush", []).extend(timings["diskcache"].over(both))
        words = {"repeat": "repeat hit", "first": "first hit, bytes verified or summed", "put": "put into a new store"}
        rows = [
            Row.of(f"{part}/{name}", f"{name}: {words[part]}", "µs", "lower", [s * 1e6 for s in seconds])
            for part in ("repeat", "first")
            for name, seconds in took[part].items()
        ]
        size = SIDE * SIDE * 4 / 1e6
        rows += [
            Row.of(f"put/{name}", f"{name}: {words['put']}", "MB/s", "higher", [size / s for s in seconds])
            for name, seconds in took["put"].items()
        ]
        targets = {"repeat/diskcache÷ours": 30.0, "repeat/lmdb÷ours": 1.0, "put/diskcache÷ours": 3.0}
        targets |= {"put/diskcache+flush÷ours+flush": 3.0, "put/diskcache÷ours+flush": 3.0}
        rows += [
            Row.of(
                f"{part}/{pair}", f"{words[part]}: time of the first ÷ time of ours", "x", "higher", values,
                target=targets.get(f"{part}/{pair}"),
            )
            for part, pairs in faster.items()
            for pair, values in pairs.items()
        ]  # fmt: skip
        real = (
            f"{count} arrays of {SIDE}×{SIDE} float32, normal noise; files below the temporary folder, page cache warm",
            "+flush: all puts, then one flush: ours and lmdb their own fsync, the others the system's sync",
        )
        return Result(self.name, quick, tuple(seeds), real, (), tuple(rows))


if __name__ == "__main__":
    sys.exit(main(Disk()))
