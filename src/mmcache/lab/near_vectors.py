"""Finding the nearest vectors of texts: ours beside faiss (all compared) and usearch (a graph of fp16)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.lab.data import texts
from mmcache.lab.measure import interleave
from mmcache.lab.models.text import TextEncoder
from mmcache.lab.near_peers import QUERIES, Find, Peer, cycled, size_name
from mmcache.lab.table import Progress, Row
from mmcache.near.vectors import Vectors

Floats = npt.NDArray[np.float32]
Told = Callable[[Floats], Peer]
"""A library that is filled; then told the queries."""


def vector_rows(size: int, quick: bool, seed: int, progress: Progress) -> Iterator[Row]:
    """`size` vectors of sentences and of mixtures of them. Raises `AssetError`."""
    rng = np.random.default_rng(seed)
    sentences = _sentences()
    random.Random(seed).shuffle(sentences)
    asked = QUERIES // 4 if quick else QUERIES
    sentences = sentences[: 3 * asked if quick else 1_500]
    encoder = TextEncoder()
    split = len(sentences) - asked  # what comes behind is asked for and not stored
    stored = np.stack([encoder.encode(text) for text in _shown(sentences, progress)])
    edited = np.stack([encoder.encode(_edited(text, n)) for n, text in enumerate(sentences[:asked])])
    real, other = stored[:split], stored[split:]
    one, two = rng.integers(0, split, (2, size))
    share = rng.random(size, dtype=np.float32)[:, None]
    vectors = real[one] * share + real[two] * (1 - share)
    vectors[:split] = real
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ours = Vectors(vectors.shape[1])
    for label, vector in enumerate(vectors):
        ours.add(label, vector)
    start = f"near/vectors-{size_name(size)}"
    peers = {"ours": _float_ours(ours), **_float_peers(vectors)}
    for kind, queries in (("edited", edited), ("other", other)):
        exact = [np.sort(vectors @ query)[::-1][:10] for query in queries]
        told = {name: peer(queries) for name, (peer, _) in peers.items()}
        measured = interleave(
            {name: cycled(peer.call, 1, asked) for name, peer in told.items()},
            rounds=3 if quick else 9,
            progress=progress,
        )
        yield _p50(f"{start}/{kind}/p50", told["ours"], asked, kind)
        for name, peer in told.items():
            if name != "ours":
                ratios = measured[name].over(measured["ours"])
                yield Row.of(f"{start}/{kind}/{name}", f"time of {name} ÷ ours", "x", "higher", ratios, target=1.0)
            for k in (1, 10):
                yield _float_recall(f"{start}/{kind}/{name}/recall-{k}", name, peer.find, exact, k)
    for name, (_, nbytes) in peers.items():
        yield Row.of(f"{start}/bytes/{name}", f"memory of {name}", "B/vector", "lower", nbytes)


def _p50(id: str, ours: Peer, count: int, kind: str) -> Row:
    seconds = []
    for n in [*range(count)] * 3:
        start = perf_counter()
        ours.call(n, 1)
        seconds.append((perf_counter() - start) * 1e6)
    return Row.of(
        id, f"one lookup of ours, {kind} text: median, and 10th to 90th percentile", "µs", "lower", seconds, target=500
    )


def _float_recall(id: str, name: str, find: Find, exact: Sequence[Floats], k: int) -> Row:
    """Of queries that have a neighbour of cosine 0.9."""
    slack = 2e-4  # of fp16
    kept = [n for n in range(len(exact)) if exact[n][0] >= 0.9]
    good = sum(far <= 1 - exact[n][k - 1] + slack for n in kept for far in find(n, k)[:k])
    target = 99.5 if name == "ours" and k == 1 else None
    metric = f"recall@{k} of {name} where a neighbour has cosine 0.9 or more"
    return Row.of(id, metric, "%", "higher", 100 * good / max(1, len(kept) * k), target=target)


def _float_ours(ours: Vectors) -> tuple[Told, float]:
    def told(queries: Floats) -> Peer:
        return Peer(
            lambda n, k: ours.nearest(queries[n], k),
            lambda n, k: [1 - cosine for _, cosine in ours.nearest(queries[n], k)],
        )

    return told, ours.nbytes / len(ours)


def _float_peers(vectors: Floats) -> dict[str, tuple[Told, float]]:
    import faiss
    from usearch.index import Index

    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    graph = Index(ndim=vectors.shape[1], metric="cos", dtype="f16")
    graph.add(np.arange(len(vectors)), vectors)

    def by_faiss(queries: Floats) -> Peer:
        def call(n: int, k: int) -> Any:
            return flat.search(queries[n : n + 1], k)

        return Peer(call, lambda n, k: (1 - call(n, k)[0][0]).tolist())

    def by_usearch(queries: Floats) -> Peer:
        def call(n: int, k: int) -> Any:
            return graph.search(queries[n], k, threads=1)

        return Peer(call, lambda n, k: call(n, k).distances.tolist())

    return {
        "faiss-flat": (by_faiss, float(vectors.itemsize * vectors.shape[1])),
        "usearch-hnsw-f16": (by_usearch, graph.memory_usage / len(vectors)),
    }


def _sentences() -> list[str]:
    parts = (part for paragraph in texts.paragraphs(60) for part in re.split(r"(?<=[.?!:])\s+", paragraph))
    return list(dict.fromkeys(part for part in parts if 25 <= len(part) <= 140))


def _shown(sentences: Sequence[str], progress: Progress) -> Iterator[str]:
    for done, sentence in enumerate(sentences):
        progress("texts embedded", done, len(sentences))
        yield sentence


def _edited(text: str, n: int) -> str:
    """Asked again in nearly the same words: case, a courtesy, words left out, two letters swapped."""
    place = len(text) // 2
    without = " ".join(word for word in text.split() if word.lower() not in {"the", "a", "an", "is", "of", "to"})
    forms = (
        text.lower().rstrip(".:?!"),
        f"please: {text}",
        without,
        text[:place] + text[place + 1] + text[place] + text[place + 2 :],
    )
    return forms[n % len(forms)]
