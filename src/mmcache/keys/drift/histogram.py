"""Histograms of projected features, and how far one lies from another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

MOST_BINS = 256
"""Codes are one byte."""


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


def edges(projected: Floats, bins: int) -> Floats:
    """float32 [K, bins − 1]: inner borders that put nearly equal shares of `projected` [n, K] into each bin.

    Where pictures repeat, values do, and a border at such a value would let the last bits of a sum move all of them
    at once. So each border lies in the middle of the widest gap within a quarter of a bin from where it should be.
    """
    return np.stack([_borders(column, bins) for column in projected.T.astype(np.float64)]).astype(np.float32)


def _borders(column: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    values, counts = np.unique(column, return_counts=True)
    if len(values) == 1:  # never varied: whatever is half a deviation away is another bin
        return np.repeat([values[0] - 0.5, values[0] + 0.5], [bins // 2, bins - 1 - bins // 2])
    below = counts.cumsum()[:-1] / len(column)
    gaps = np.diff(values)
    middles = values[:-1] + gaps / 2
    found = np.empty(bins - 1)
    for place in range(1, bins):
        share = place / bins
        low, high = np.searchsorted(below, (share - 0.25 / bins, share + 0.25 / bins))
        if low < high:
            found[place - 1] = middles[low + gaps[low:high].argmax()]
        else:  # one value is more than half a bin
            found[place - 1] = middles[np.abs(below - share).argmin()]
    return np.maximum.accumulate(found)


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
