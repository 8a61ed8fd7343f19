"""Histograms of projected features, and how far one lies from another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

MOST_BINS = 256
"""Codes are one byte."""
DITHER = 0.1
"""Deviations."""
DITHER_ROWS = 4096


def directions(width: int, count: int, seed: int) -> Floats:
    """float32 [width, count]: random unit vectors, orthogonal as far as `width` allows.

    Random, not principal, axes: a move of the mean along a direction in which the features hardly vary is seen too.
    """
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((width, count))
    if count <= width:
        raw = np.linalg.qr(raw)[0]
    unit: Floats = (raw / np.linalg.norm(raw, axis=0)).astype(np.float32)
    return unit


def dither(count: int, seed: int) -> Floats:
    """float32 [4096, count]: normal noise, a tenth in deviation, added to projections before they are counted.

    Where pictures repeat, values do. Undithered, a value beside a border would take all of its repeats across with the
    last bits of a sum, or stay for all of a real move; so a share of them crosses, in proportion to the move.
    """
    noise: Floats = np.random.default_rng([seed, count]).standard_normal((DITHER_ROWS, count), np.float32)
    return noise * np.float32(DITHER)


def edges(projected: Floats, bins: int) -> Floats:
    """float32 [K, bins − 1]: inner borders that put equal shares of `projected` [n, K] into each bin."""
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    return np.quantile(projected, shares, axis=0).T.astype(np.float32)


def codes(projected: Floats, borders: Floats) -> Codes:
    """uint8 [n, K]: the bin of each value."""
    out = np.empty(projected.shape, np.uint8)
    for k, inner in enumerate(borders):
        out[:, k] = np.searchsorted(inner, projected[:, k], side="right")
    return out


def count(coded: Codes, bins: int) -> Counts:
    """int64 [K, bins]: how often each bin occurs in each column of `coded` [n, K]."""
    width = coded.shape[1]
    places = coded.astype(np.int64) + np.arange(width) * bins
    return np.bincount(places.ravel(), minlength=width * bins).reshape(width, bins)


def divergence(now: npt.NDArray[np.int64], base: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """KL(now ‖ base) in nats over the last axis, half a sample added to every bin (Krichevsky & Trofimov, 1981).

    `now` and `base` broadcast; the smoothing keeps an empty bin of the baseline from making it infinite.
    """
    bins = now.shape[-1]
    p = (now + 0.5) / (now.sum(-1, keepdims=True) + 0.5 * bins)
    q = (base + 0.5) / (base.sum(-1, keepdims=True) + 0.5 * bins)
    return np.asarray((p * np.log(p / q)).sum(-1), np.float64)
