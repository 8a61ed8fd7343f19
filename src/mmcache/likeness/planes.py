"""A picture as grids of cells, and whether two such agree cell by cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Planes(NamedTuple):
    """Averages over cells, in levels of 0 to 255."""

    luma: Floats
    """[n, n]."""
    chroma: Floats
    """[2, n / 2, n / 2]: Cb, Cr, plus 128."""
    alpha: Floats | None
    """[n / 2, n / 2]; None where all is opaque."""

    def halved(self) -> Planes:
        """The same with half as many cells a side."""
        return Planes(halved(self.luma), halved(self.chroma), None if self.alpha is None else halved(self.alpha))


def halved(planes: Floats) -> Floats:
    """[..., 2 n, 2 m] → [..., n, m], averaged."""
    rows = planes[..., ::2, :] + planes[..., 1::2, :]
    return np.asarray((rows[..., ::2] + rows[..., 1::2]) * np.float32(0.25), np.float32)


class Allowed(NamedTuple):
    """By how much a cell may differ: levels, plus a share of the contrast around it. (luma's, chroma's)"""

    luma: tuple[float, float]
    chroma: tuple[float, float]
    """Wider: JPEG and WebP keep colour at half the resolution."""


SMALL_CELLS = Allowed((10.0, 0.12), (16.0, 0.15))
"""Cells of 2 to 4 pixels: a codec's errors in single blocks show. These figures are measured: table `likeness`."""
LARGE_CELLS = Allowed((7.0, 0.1), (12.0, 0.15))
LARGE = 4.0
"""Pixels; so wide a cell averages a quarter of a codec's block of 8 × 8, and more."""
LEAST_CONTRAST = 12.0
"""Levels between the darkest and the brightest cell, or as much in colour, below which a picture is blank."""


def varied(planes: Planes) -> bool:
    """Whether there is anything to see; two blank pictures have no detail by which to tell them apart."""
    return any(float(np.ptp(plane)) >= LEAST_CONTRAST for plane in (planes.luma, *planes.chroma))


def agree(one: Planes, other: Planes, cell: float) -> bool:
    """Whether no cell, `cell` pixels wide, differs by more than re-encoding does to it. Symmetric."""
    allowed = LARGE_CELLS if cell >= LARGE else SMALL_CELLS
    return (
        within(one.luma, other.luma, allowed.luma)
        and within(one.chroma, other.chroma, allowed.chroma)
        and (one.alpha is None or other.alpha is None or within(one.alpha, other.alpha, allowed.luma))
    )


def within(one: Floats, other: Floats, allowed: tuple[float, float]) -> bool:
    """Whether [..., n, m] cells differ by no more than `allowed` of levels, and of the contrast around in both."""
    levels, share = allowed
    differences = np.abs(one - other)
    if differences.max(initial=0.0) <= levels:
        return True
    around = np.minimum(contrast(one), contrast(other))
    return bool((differences <= levels + share * around).all())


def contrast(planes: Floats) -> Floats:
    """[..., n, m]: the brightest less the darkest of the 3 × 3 cells around each."""
    padded = np.pad(planes, [(0, 0)] * (planes.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    high = np.maximum(np.maximum(padded[..., :-2], padded[..., 1:-1]), padded[..., 2:])
    low = np.minimum(np.minimum(padded[..., :-2], padded[..., 1:-1]), padded[..., 2:])
    high = np.maximum(np.maximum(high[..., :-2, :], high[..., 1:-1, :]), high[..., 2:, :])
    low = np.minimum(np.minimum(low[..., :-2, :], low[..., 1:-1, :]), low[..., 2:, :])
    return np.asarray(high - low, np.float32)
