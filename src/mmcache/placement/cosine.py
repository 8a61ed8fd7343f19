"""Cosines of all pictures against all texts: a Triton kernel where there is a GPU, BLAS otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Device = Literal["cpu", "cuda"]

AT_ONCE = 1 << 24
"""Cosines held at a time while the nearest are looked for: 64 MiB."""


@cache
def device() -> Device:
    """`cuda` where torch, Triton and a GPU are there, else `cpu`. Asks torch only where Triton is installed."""
    if find_spec("triton") is None or find_spec("torch") is None:
        return "cpu"
    found: Device = import_module("mmcache.placement.kernels").device()
    return found


def unit(vectors: npt.ArrayLike) -> Floats:
    """float32 [n, d], each row of norm 1; a row of zeros stays one, and is like no other.

    Raises `InvalidInputError` for other shapes, and for what is not finite.
    """
    rows = np.asarray(vectors, np.float32)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InvalidInputError(f"cosines are of finite vectors [n, d], not of shape {rows.shape}")
    scale = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # first, so that no square overflows or vanishes
    rows = np.divide(rows, scale, out=np.zeros_like(rows), where=scale > 0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0), np.float32)


def cosines(pictures: npt.ArrayLike, texts: npt.ArrayLike, on: Device | None = None) -> Floats:
    """float32 [n, m] of vectors [n, d] and [m, d]. on: None = `device()`. Raises `InvalidInputError`."""
    one, other = _pair(pictures, texts)
    if (device() if on is None else on) == "cuda":
        found: Floats = import_module("mmcache.placement.kernels").products(one, other)
        return found
    return np.asarray(np.matmul(one, other.T), np.float32)


def nearest(pictures: npt.ArrayLike, texts: npt.ArrayLike, k: int, on: Device | None = None) -> tuple[Numbers, Floats]:
    """The `k` nearest texts of each picture (all, where there are fewer): numbers int64 [n, k], cosines [n, k], nearest
    first, of equal ones the first. Never holds much more than `AT_ONCE` cosines. Raises `InvalidInputError`."""
    one, other = _pair(pictures, texts)
    k = min(k, len(other))
    if k < 1:
        return np.zeros((len(one), 0), np.int64), np.zeros((len(one), 0), np.float32)
    parts = [_best(cosines(part, other, on), k) for part in _slices(one, max(1, AT_ONCE // len(other)))]
    if not parts:
        return np.zeros((0, k), np.int64), np.zeros((0, k), np.float32)
    return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([found for _, found in parts])


def _best(found: Floats, k: int) -> tuple[Numbers, Floats]:
    if k < found.shape[1]:
        least = -np.partition(-found, k - 1, axis=1)[:, k - 1 : k]
        found = np.where(found >= least, found, np.float32(-2.0))  # ties at the edge are settled by number, below
    order = np.argsort(-found, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(found, order, axis=1)


def _slices(rows: Floats, step: int) -> Iterator[Floats]:
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _pair(pictures: npt.ArrayLike, texts: npt.ArrayLike) -> tuple[Floats, Floats]:
    one, other = unit(pictures), unit(texts)
    if one.shape[1] != other.shape[1]:
        raise InvalidInputError(f"vectors of {one.shape[1]} and {other.shape[1]} dimensions have no cosine; align them")
    return one, other
