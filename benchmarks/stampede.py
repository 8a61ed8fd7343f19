"""A thousand callers in eight processes miss one key at once: how often is it computed?"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import cachetools
import diskcache
import joblib
import numpy as np
import numpy.typing as npt

from mmcache import Cache
from mmcache.lab.bench import main
from mmcache.lab.table import Progress, Result, Row, Table

PROCESSES, THREADS = 8, 125
WORK_SECONDS = 0.3
Features = npt.NDArray[np.float32]


def compute(log: Path) -> Features:
    """The expensive thing. Each run leaves one byte in `log`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b".")
    os.close(descriptor)
    time.sleep(WORK_SECONDS)
    return np.arange(1024, dtype=np.float32)


def ours(folder: Path) -> Callable[[], Any]:
    cache = Cache(folder / "cache", memory="16MiB", disk="64MiB")
    atexit.register(cache.close)  # a process that ends without it may lose what is not written yet
    key = cache.key("one input", modality="text", signature="encoder-1")
    return lambda: cache.get_or_compute(key, partial(compute, folder / "log"))


def with_diskcache(folder: Path) -> Callable[[], Any]:
    return partial(diskcache.Cache(str(folder / "cache")).memoize()(compute), folder / "log")


def with_joblib(folder: Path) -> Callable[[], Any]:
    return partial(joblib.Memory(folder / "cache", verbose=0).cache(compute), folder / "log")


def with_cachetools(folder: Path) -> Callable[[], Any]:
    shared: cachetools.LRUCache[Any, Any] = cachetools.LRUCache(16)
    return partial(cachetools.cached(shared, lock=threading.Lock())(compute), folder / "log")


def with_condition(folder: Path) -> Callable[[], Any]:
    shared: cachetools.LRUCache[Any, Any] = cachetools.LRUCache(16)
    return partial(cachetools.cached(shared, condition=threading.Condition())(compute), folder / "log")


MAKERS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "ours": ours,
    "cachetools+condition": with_condition,
    "cachetools+lock": with_cachetools,
    "diskcache": with_diskcache,
    "joblib": with_joblib,
}


def wait_for(everybody: Barrier) -> None:
    """The last thread of a process to be ready waits for the other processes."""
    everybody.wait()


def process(name: str, folder: Path, threads: int, everybody: Barrier) -> None:
    """One process: all its threads are let go together with everybody else's."""
    warnings.simplefilter("ignore")  # joblib remarks how long a thousand callers take to write the same file
    call = MAKERS[name](folder)
    ready = threading.Barrier(threads, action=partial(wait_for, everybody))
    wrong: list[object] = []

    def caller() -> None:
        ready.wait()
        if not np.array_equal(call(), np.arange(1024, dtype=np.float32)):
            wrong.append(1)

    crew = [threading.Thread(target=caller) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    sys.exit(len(wrong) > 0)


def stampede(name: str, processes: int, threads: int) -> tuple[int, float]:
    """How often it was computed, and the seconds from the start gun until the last caller had its value."""
    context = multiprocessing.get_context("spawn")
    everybody = context.Barrier(processes + 1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        crew = [context.Process(target=process, args=(name, folder, threads, everybody)) for _ in range(processes)]
        for one in crew:
            one.start()
        everybody.wait(timeout=120)
        start = time.perf_counter()
        for one in crew:
            one.join()
        seconds = time.perf_counter() - start
        if any(one.exitcode for one in crew):
            raise RuntimeError(f"{name}: a caller failed or got a wrong value")
        return (folder / "log").stat().st_size, seconds


class Stampede(Table):
    """Computes per stampede."""

    name = "bench-stampede"
    title = "A thousand callers miss one key at once: how often is it computed?"

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds = 1 if quick else 3
        computes: dict[str, list[float]] = {name: [] for name in MAKERS}
        waits: dict[str, list[float]] = {name: [] for name in MAKERS}
        for done in range(rounds):
            for step, name in enumerate(MAKERS, start=1):
                count, seconds = stampede(name, PROCESSES, THREADS)
                computes[name].append(count)
                waits[name].append(seconds)
                progress(self.name, done * len(MAKERS) + step, rounds * len(MAKERS))
        rows = [
            Row.of(f"computes/{name}", f"{name}: computations", "runs", "lower", max(counts),
                   target=1 if name == "ours" else None)
            for name, counts in computes.items()
        ]  # fmt: skip
        rows += [
            Row.of(f"seconds/{name}", f"{name}: until the last caller is served and gone", "s", "lower", seconds)
            for name, seconds in waits.items()
        ]
        real = (f"{PROCESSES} processes × {THREADS} threads, {rounds} stampedes each; the worst count is shown",)
        simulated = (f"the encoder sleeps for {WORK_SECONDS} s",)
        return Result(self.name, quick, tuple(seeds), real, simulated, tuple(rows))


if __name__ == "__main__":
    sys.exit(main(Stampede()))
