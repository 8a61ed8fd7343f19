"""Who finds the nearest codes: ours, usearch and faiss, each asked one query a call on one thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.near.hamming import HammingIndex

Words = npt.NDArray[np.uint64]
Find = Callable[[int, int], Sequence[float]]
"""`find(number of the query, k)`: how far the nearest are, as the peer says."""

QUERIES, MOST_BITS = 256, 6
"""Queries of one kind; how far a planted neighbour is at most."""


@dataclass(frozen=True)
class Peer:
    """One way to find, and whether it may miss."""

    call: Callable[[int, int], object]
    """What is timed: `call(number of the query, k)`, as the library answers."""
    find: Find
    exact: bool = True


def size_name(size: int) -> str:
    """20k, 100k, 1M."""
    return f"{size // 1000}k" if size < 1_000_000 else f"{size // 1_000_000}M"


def cycled(call: Callable[[int, int], object], k: int, queries: int = QUERIES) -> Callable[[], object]:
    """One query after the other, for ever."""
    numbers = itertools.cycle(range(queries))
    return lambda: call(next(numbers), k)


def ours(index: HammingIndex, queries: Words) -> Peer:
    """Our own."""
    asked = queries.tolist()
    return Peer(lambda n, k: index.nearest(asked[n], k), lambda n, k: [far for _, far in index.nearest(asked[n], k)])


def code_peers(codes: Words, graph: bool) -> dict[str, Callable[[Words], Peer]]:
    """Each library, filled; then told the queries."""
    import faiss
    from usearch.index import Index, MetricKind, search

    faiss.omp_set_num_threads(1)
    raw = codes.view(np.uint8).reshape(-1, 8)
    flat, hashed = faiss.IndexBinaryFlat(64), faiss.IndexBinaryMultiHash(64, 4, 16)
    for index in (flat, hashed):
        index.add(raw)
    hashed.nflip = 1  # finds all up to distance 7

    def by_faiss(index: Any, exact: bool) -> Callable[[Words], Peer]:
        def told(queries: Words) -> Peer:
            asked = queries.view(np.uint8).reshape(-1, 1, 8)

            def find(n: int, k: int) -> Sequence[float]:
                far, labels = index.search(asked[n], k)
                return [float(d) if label >= 0 else np.inf for d, label in zip(far[0], labels[0], strict=True)]

            return Peer(lambda n, k: index.search(asked[n], k), find, exact)

        return told

    def exact(queries: Words) -> Peer:
        asked = queries.view(np.uint8).reshape(-1, 8)

        def call(n: int, k: int) -> Any:
            return search(raw, asked[n], k, MetricKind.Hamming, exact=True, threads=1)

        return Peer(call, lambda n, k: call(n, k).distances.tolist())

    peers = {"usearch-exact": exact, "faiss-flat": by_faiss(flat, True), "faiss-multihash": by_faiss(hashed, False)}
    if graph:
        made = Index(ndim=64, metric=MetricKind.Hamming, dtype="b1")
        made.add(np.arange(len(raw)), raw)

        def hnsw(queries: Words) -> Peer:
            asked = queries.view(np.uint8).reshape(-1, 8)
            return Peer(
                lambda n, k: made.search(asked[n], k, threads=1),
                lambda n, k: made.search(asked[n], k, threads=1).distances.tolist(),
                exact=False,
            )

        peers["usearch-hnsw"] = hnsw
    return peers
