"""What the hot-key graph costs: an update, a refresh, a byte; on generated keys and on published traces."""

from __future__ import annotations

import gc
import itertools
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmcache.cache import Cache
from mmcache.hotkeys.graph import MOST_EDGES, MOST_NODES, HotGraph
from mmcache.hotkeys.scores import HotScores
from mmcache.hotkeys.tracking import Look, Tracker, refresh
from mmcache.hotkeys.viewing import Seen, viewed
from mmcache.hotkeys.watch import HotKeys
from mmcache.lab.graph_world import key
from mmcache.lab.measure import Timing, interleave, uncollected
from mmcache.lab.traces.published import PUBLISHED, read
from mmcache.model.errors import AssetError
from mmcache.model.key import Key

SIZES = (1_000, 10_000, 100_000)
"""Edges."""
_BATCH = 1_000


def filled(edges: int, seed: int, nodes: int | None = None) -> tuple[HotGraph, list[tuple[Key, Key]]]:
    """A graph of that many edges, five a key, in groups of a hundred; and the edges."""
    random = np.random.default_rng(seed)
    count = nodes or max(200, edges // 5)
    known: set[tuple[int, int]] = set()
    while len(known) < edges:
        source = random.integers(0, count, edges)
        near = source // 100 * 100 + random.integers(0, 100, edges)
        target = np.where(random.random(edges) < 0.8, near, random.integers(0, count, edges)) % count
        known.update((a, b) for a, b in zip(source.tolist(), target.tolist(), strict=True) if a != b)
    keys = [key(number) for number in range(count)]
    names = sorted(known)
    made = [(keys[a], keys[b]) for a, b in (names[at] for at in random.permutation(len(names))[:edges].tolist())]
    graph = HotGraph()
    for one, other in made:
        graph.use(one, 0.0)
        graph.follow(one, other, 0.0, float(random.exponential(1.0)) + 0.1)
    return graph, made


def updates(seed: int, quick: bool) -> dict[str, Timing]:
    """Seconds of a `follow` of an edge that is there, by how many are; and of one of keys never seen, when full."""
    calls: dict[str, Callable[[], object]] = {}
    for size in SIZES:
        graph, made = filled(size, seed)
        calls[str(size)] = _again(graph, made)
    full, numbers = HotGraph(), itertools.count(10**9)
    for _ in range(MOST_EDGES if not quick else MOST_NODES):
        number = next(numbers)
        full.follow(key(number), key(number + 1), number / 1e5)

    def churn() -> None:
        for number in itertools.islice(numbers, _BATCH):
            full.follow(key(number), key(number + 1), number / 1e5)

    calls["churn"] = churn
    return interleave(calls, rounds=9 if quick else 31, per=_BATCH, least_seconds=0.01)


def _again(graph: HotGraph, edges: list[tuple[Key, Key]]) -> Callable[[], object]:
    endless = itertools.cycle(edges)
    ticks = itertools.count(1)

    def call() -> None:
        tick = next(ticks) / 1e4
        for one, other in itertools.islice(endless, _BATCH):
            graph.follow(one, other, tick)

    return call


def refreshes(seed: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of communities, ids and view at 1e5 edges, of which two in a hundred change between two looks, and of the
    processor, which no other program lengthens. The first one begins from single keys."""
    graph, made = filled(SIZES[-1], seed)
    random, tracker, scores = np.random.default_rng(seed), Tracker(), HotScores()
    took, worked = [], []
    with uncollected():
        for turn in range(rounds + 1):
            tick = 2.0 * turn
            for at in random.integers(0, len(made), len(made) // 50).tolist():
                one, other = made[at]
                graph.follow(one, other, tick)
            began, busy = time.perf_counter(), time.thread_time()
            look = refresh(graph, tracker, tick, tick)
            shown(graph, look, tick, scores)
            took.append(time.perf_counter() - began)
            worked.append(time.thread_time() - busy)
    return took, worked


def shown(graph: HotGraph, look: Look, tick: float, scores: HotScores) -> None:
    """Make the view."""
    viewed(
        graph, look, tick, at=tick, service="lab", instance="lab", score=scores.score, expect=lambda key: None,
        seen=lambda key: Seen("text", "default", "memory", 1),
    )  # fmt: skip


def bytes_an_edge(seed: int) -> tuple[float, float]:
    """Bytes of a graph of 1e5 edges by edge, without its keys, which others hold as well; and by key with edges."""
    _, made = filled(SIZES[-1], seed)
    gc.collect()
    tracemalloc.start()
    try:
        graph = HotGraph()
        for one, other in made:
            graph.use(one, 0.0)
            graph.follow(one, other, 0.0)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return held / graph.edges, held / len(graph)


@dataclass(frozen=True)
class Churned:
    """After many keys that were each used once."""

    keys: int
    nodes: int
    edges: int
    mebibytes: float
    """Resident memory that came after the graph was full."""
    seconds: float


def churned(count: int) -> Churned:
    """One after another, a thousand a tick."""
    graph, before, began, full = HotGraph(), key(0), time.perf_counter(), 0
    for number in range(1, count):
        one = key(number)
        graph.use(one, number / 1e3)
        graph.follow(before, one, number / 1e3)
        before = one
        if number == 2 * MOST_EDGES:
            gc.collect()
            full = resident()
    return Churned(
        count, len(graph), graph.edges, (resident() - full) / 2**20 if full else 0.0, time.perf_counter() - began
    )


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def hot_path(rounds: int) -> dict[str, Timing]:
    """Seconds of a `get` from memory: nobody watches, the watcher hears events, and it is told of visits."""
    calls: dict[str, Callable[[], object]] = {}
    open_caches: list[Cache] = []
    for name in ("nobody", "events", "visits"):
        hot = HotKeys(threaded=False)
        cache = Cache(memory="8MiB", prefetch=hot if name == "visits" else None)
        if name == "events":
            hot.start(cache)
        keys = [cache.key(str(number), modality="text", signature="lab") for number in range(_BATCH)]
        for one in keys:
            cache.put(one, b"value")
        calls[name] = _reads(cache, keys)
        open_caches.append(cache)
    try:
        return interleave(calls, rounds=rounds, per=_BATCH, least_seconds=0.002)  # less than a scheduler's turn
    finally:
        for cache in open_caches:
            cache.close()


def _reads(cache: Cache, keys: list[Key]) -> Callable[[], object]:
    get = cache.get

    def call() -> None:
        for one in keys:
            get(one)

    return call


@dataclass(frozen=True)
class Replayed:
    """A published trace through graph and tracker."""

    requests: int
    update: float
    """Seconds of a use and its edge, mean."""
    refresh: list[float]
    """Seconds of each look."""
    edges: int
    """Most at a look."""
    communities: float
    """Living, mean over the looks."""
    kept: float
    """Of the keys that are in a living community at two looks one after another: share whose id is the same."""
    modularity: float


def replayed(name: str, folder: Path, quick: bool) -> Replayed:
    """mooncake: blocks of one prompt follow each other, a tick is a second. web12: pages in the order of all requests,
    a tick is a hundred of them. Raises `AssetError`."""
    graph, tracker = HotGraph(), Tracker()
    events, look_ticks = (_mooncake(folder), 30.0) if name == "mooncake" else (_web12(folder), 20.0)
    if quick:
        events = itertools.islice(events, 60_000)
    took, seconds, requests, due, most = [], 0.0, 0, look_ticks, 0
    living, same, both, quality = [], 0, 0, []
    before: dict[Key, int] = {}
    began = time.perf_counter()
    for tick, source, target in events:
        if tick >= due:
            seconds += time.perf_counter() - began
            looked = time.perf_counter()
            look = refresh(graph, tracker, tick, tick)
            took.append(time.perf_counter() - looked)
            ids = {one.id for one in look.living}
            now = {graph.key(place): id for place, id in enumerate(look.ids.tolist()) if id in ids}
            common = now.keys() & before.keys()
            same, both = same + sum(now[one] == before[one] for one in common), both + len(common)
            living.append(len(look.living))
            quality.append(_quality(graph, look, tick))
            before, due, most = now, tick + look_ticks, max(most, graph.edges)
            began = time.perf_counter()
        requests += 1
        graph.use(target, tick)
        if source is not None:
            graph.follow(source, target, tick)
    seconds += time.perf_counter() - began
    return Replayed(
        requests, seconds / max(1, requests), took, most, float(np.mean(living)), same / max(1, both),
        float(np.mean(quality)),
    )  # fmt: skip


def _quality(graph: HotGraph, look: Look, tick: float) -> float:
    from mmcache.hotkeys.communities import modularity

    source, target, weight = graph.arrays(tick)
    labels = np.where(look.ids > 0, look.ids, int(look.ids.max(initial=0)) + 1 + np.arange(len(look.ids)))
    return modularity(source, target, weight, np.unique(labels, return_inverse=True)[1].reshape(-1))


Events = Iterator[tuple[float, Key | None, Key]]


def _mooncake(folder: Path) -> Events:
    path = folder / PUBLISHED["mooncake"].file
    if not path.is_file():
        raise AssetError(f"no trace {path.name} in {folder}; set MMCACHE_TRACES to the folder of the traces")
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            before: Key | None = None
            for block in row["hash_ids"]:
                one = key(block)
                yield row["timestamp"] / 1e3, before, one
                before = one


def _web12(folder: Path) -> Events:
    before: Key | None = None
    for number, page in enumerate(read("web12", folder).ids.tolist()):
        one = key(page)
        yield number / 100, before, one
        before = one
