"""How good a hash is: mean average precision of retrieval across modalities, balance and independence of its bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint64]
DEPTH = 10


def hamming(asked: Codes, known: Codes) -> npt.NDArray[np.float32]:
    """uint64 [q] and [g] → differing bits, float32 [q, g]."""
    return np.asarray(np.bitwise_count(asked[:, None] ^ known[None, :]), np.float32)


def average_precision(
    distance: Floats, relevant: npt.NDArray[np.bool_], seed: int = 0, depth: int = DEPTH
) -> npt.NDArray[np.float64]:
    """AP@depth of each query that has anything relevant: [q, g] and [q, g] → float64 [≤ q].

    AP@k = the mean of the precision at each relevant place among the first k, over min(k, relevant in the gallery).
    Equal distances are ordered by one random order of the gallery, fixed by `seed`: codes have many ties, and the order
    of the gallery must not decide them.
    """
    gallery = distance.shape[1]
    depth = min(depth, gallery)
    shuffled = np.random.default_rng(seed).permutation(gallery)
    asked = relevant.any(axis=1)
    distance, relevant = distance[asked][:, shuffled], relevant[asked][:, shuffled]
    first = np.argsort(distance, axis=1, kind="stable")[:, :depth]
    hits = np.take_along_axis(relevant, first, axis=1)
    precision = hits.cumsum(axis=1) / np.arange(1, depth + 1)
    return np.asarray((precision * hits).sum(axis=1) / np.minimum(relevant.sum(axis=1), depth))


def balance(codes: Codes) -> npt.NDArray[np.float64]:
    """Share of codes in which each bit is set, float64 [64]; 0.5 is best."""
    return np.asarray(unpacked(codes).mean(axis=0))


def correlation(codes: Codes) -> float:
    """Mean |correlation| of two bits; bits that never change are left out. 0 = independent."""
    bits = unpacked(codes).astype(np.float64)
    bits = bits[:, bits.std(axis=0) > 0]
    if bits.shape[1] < 2:
        return 1.0
    found = np.abs(np.corrcoef(bits.T))
    return float(found[np.triu_indices(len(found), 1)].mean())


def unpacked(codes: Codes) -> npt.NDArray[np.bool_]:
    """uint64 [n] → bool [n, 64], bit i in column i."""
    octets = np.ascontiguousarray(codes, "<u8").view(np.uint8).reshape(len(codes), 8)
    return np.unpackbits(octets, axis=1, bitorder="little").astype(bool)
