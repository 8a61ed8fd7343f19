"""Attention maps as distributions over a support that two of them share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

TOLERANCE = 0.01
"""How far a row's sum may be from 1: softmax in half precision is off by as much."""


def distributions(rows: npt.ArrayLike) -> Floats:
    """float64 [..., n]: `rows`, each along the last axis a distribution; sums are made exactly 1.

    Raises `InvalidInputError` for what is none: NaN, infinite or negative weights, a sum that is not 1 within
    `TOLERANCE`, no weights at all. Rows that are masked out altogether are for the caller to leave out.
    """
    found = np.atleast_1d(np.asarray(rows, np.float64))
    if found.size == 0:
        raise InvalidInputError("an attention map has at least one weight")
    total = found.sum(axis=-1, keepdims=True)
    if not (np.isfinite(total).all() and found.min() >= 0):  # a sum is finite only where all its weights are
        raise InvalidInputError("attention weights are finite and 0 or more; apply the softmax before")
    if (np.abs(total - 1) > TOLERANCE).any():
        raise InvalidInputError("each row of an attention map sums to 1 along its last axis; leave masked rows out")
    shares: Floats = found / total
    return shares


def rebinned(rows: Floats, bins: int, axis: int = -1) -> Floats:
    """float64: `rows` with `bins` bins along `axis`, no weight lost.

    Bins divide one and the same interval evenly, and weight lies evenly within its bin: a new bin gets of each old one
    the share that it overlaps. Shares of grids [..., height, width]: once for each axis.
    """
    moved = np.moveaxis(rows, axis, -1)
    length = moved.shape[-1]
    if bins < 1:
        raise InvalidInputError(f"a support has at least one bin, not {bins}")
    if bins == length:
        return rows
    below = np.concatenate([np.zeros((*moved.shape[:-1], 1)), np.cumsum(moved, axis=-1)], axis=-1)
    edges = np.arange(bins + 1) * (length / bins)
    whole = np.minimum(edges.astype(np.intp), length - 1)
    until = below[..., whole] + (edges - whole) * moved[..., whole]
    return np.moveaxis(np.maximum(np.diff(until, axis=-1), 0.0), -1, axis)


def on_common_support(rows: Floats, others: Floats) -> tuple[Floats, Floats]:
    """float64 [..., k] twice: two maps of distributions, [..., n] and [..., m], over the same k places.

    Two of one length are taken to be over the same places (a picture's patches). Of two lengths the finer is rebinned
    to the coarser: that makes no detail up, and where bins nest, a divergence between them can only get smaller by it
    (data processing inequality; Cover & Thomas, Elements of Information Theory, 2.8). That is for places in a row, as
    a sound's frames are. Grids of two sizes have to be brought to one by their caller, a `rebinned` for each axis:
    flattened, places beside each other are not near each other.
    """
    bins = min(rows.shape[-1], others.shape[-1])
    return rebinned(rows, bins), rebinned(others, bins)


def pooled(rows: npt.ArrayLike) -> Floats:
    """float64 [n]: the mean of all distributions of a map, whatever its leading axes (heads, words)."""
    found = distributions(rows)
    mean: Floats = found.reshape(-1, found.shape[-1]).mean(axis=0)
    return mean
