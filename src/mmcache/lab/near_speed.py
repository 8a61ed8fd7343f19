"""How long the nearest take to find, beside usearch and faiss in one run: 64-bit codes, and vectors of real texts.

One lookup a call, on one thread, the call from Python included, as a cache asks. Ratios are the peer's time ÷ ours,
round by round: below 1 the peer is faster. Recall is the share of results that are no farther than the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mmcache.lab.measure import Timing, interleave
from mmcache.lab.near_peers import MOST_BITS, QUERIES, Find, code_peers, cycled, ours, size_name
from mmcache.lab.near_vectors import vector_rows
from mmcache.lab.table import Progress, Row
from mmcache.near.hamming import HammingIndex

GRAPH_UP_TO = 100_000
"""The largest set that a graph is built of here: of 10⁶ codes that takes a quarter of an hour."""
REAL = (
    "exact Hamming search: ours, usearch (exact and HNSW) and faiss (flat and multi-hash), one thread each",
    "vectors: multilingual-e5-small of sentences of Python's manual, and of the same sentences edited",
)
SIMULATED = (
    "the codes are random bits; a near query is a stored code with up to 6 bits flipped",
    "vectors beyond the real ones are mixtures of two of them; queries with a neighbour are generated edits",
)


def rows(quick: bool, seeds: Sequence[int], progress: Progress) -> list[Row]:
    """Codes at 10⁵ and 10⁶, vectors at 10⁵ × 384 (`quick`: at 2 · 10⁴ and 5 000). Raises `AssetError`."""
    # Vectors first: once faiss is loaded, the text model runs on its threads, and far slower.
    vectors = [*vector_rows(5_000 if quick else 100_000, quick, seeds[0], progress)]
    sizes = (20_000,) if quick else (100_000, 1_000_000)
    return [*(row for size in sizes for row in _codes(size, quick, seeds, progress)), *vectors]


def _codes(size: int, quick: bool, seeds: Sequence[int], progress: Progress) -> Iterator[Row]:
    timings: dict[tuple[str, int], dict[str, list[Timing]]] = {}
    recalls: dict[tuple[str, int, str], list[float]] = {}
    bytes_a_code = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2**64, size, dtype=np.uint64)
        index = HammingIndex()
        for label, code in enumerate(codes.tolist()):
            index.add(label, code)
        bytes_a_code = index.nbytes / size
        near = codes[:QUERIES].copy()
        for n in range(QUERIES):
            flips = rng.choice(64, rng.integers(0, MOST_BITS + 1), replace=False)
            near[n] ^= np.bitwise_or.reduce(np.uint64(1) << flips.astype(np.uint64), initial=np.uint64(0))
        built = code_peers(codes, graph=size <= GRAPH_UP_TO and seed == seeds[0])
        for kind, queries in (("near", near), ("random", rng.integers(0, 2**64, QUERIES, dtype=np.uint64))):
            peers = {"ours": ours(index, queries), **{name: made(queries) for name, made in built.items()}}
            for k in (1, 10):
                calls = {name: cycled(peer.call, k) for name, peer in peers.items()}
                rounds = 3 if quick else 7
                measured = interleave(calls, rounds=rounds, least_seconds=0.02, progress=progress)
                for name, timing in measured.items():
                    timings.setdefault((kind, k), {}).setdefault(name, []).append(timing)
                for name, peer in peers.items():
                    if not peer.exact:
                        recalls.setdefault((kind, k, name), []).append(_recall(peers["ours"].find, peer.find, k))
    yield from _code_rows(size_name(size), timings, recalls)
    yield Row.of(
        f"near/codes-{size_name(size)}/bytes", "memory of ours, with what is reserved", "B/code", "lower", bytes_a_code
    )


def _code_rows(
    size: str,
    timings: dict[tuple[str, int], dict[str, list[Timing]]],
    recalls: dict[tuple[str, int, str], list[float]],
) -> Iterator[Row]:
    for (kind, k), by_name in timings.items():
        start = f"near/codes-{size}/{kind}/k{k}"
        ours = by_name.pop("ours")
        nanoseconds = [sample for timing in ours for sample in timing.scaled(1e9)]
        yield Row.of(f"{start}/ours", f"a lookup among {size} codes, {kind} query, k = {k}", "ns", "lower", nanoseconds)
        for name, theirs in by_name.items():
            ratios = [ratio for one, other in zip(theirs, ours, strict=False) for ratio in one.over(other)]
            yield Row.of(f"{start}/{name}", f"time of {name} ÷ ours", "x", "higher", ratios, target=1.0)
            if (kind, k, name) in recalls:
                share = recalls[kind, k, name]
                yield Row.of(f"{start}/{name}/recall", f"recall of {name}; ours is exact", "%", "higher", share)


def _recall(exact: Find, other: Find, k: int) -> float:
    """In per cent."""
    good = 0
    for n in range(QUERIES):
        limit = max(exact(n, k))
        good += sum(far <= limit for far in other(n, k)[:k])
    return 100 * good / (QUERIES * k)
