"""Attention triples: ⟨region, text span, cross-attention score⟩, cut by what the attention shows, not by fixed length.

A word's *share* of a cell is its attention there over all its attention. A cell is *on* where the largest share is at
least `threshold` of the largest anywhere; the words with at least `near` of the cell's largest share *lead* there. A
region is a connected area (by edges) of cells that are on, where neighbours have a leading word in common: two words
that look at two things side by side give two regions. A region's span is the word with the largest share of it, and the
words beside that word that have at least `near` as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.keys.recipe import Size
from mmcache.keys.region import Region
from mmcache.model.errors import InvalidInputError

Cell = tuple[int, int]
"""row, column."""

THRESHOLD = 0.1
NEAR = 0.5
"""Both chosen on 80 training pictures of the laboratory's small model; another model's maps may want others."""


@dataclass(frozen=True, slots=True)
class Triple:
    """One semantic region, the words that look at it, and how much."""

    region: Region
    """The smallest rectangle of the picture, in its own pixels, that holds the cells."""
    span: str
    """The words, with spaces between them."""
    words: range
    """Their places among the words that the map was made for."""
    score: float
    """0 to 1: the share of their attention that falls on the cells; mean over the words."""
    cells: tuple[Cell, ...]
    """Of the attention map, sorted."""


def triples(
    attention: npt.NDArray[np.floating],
    words: Sequence[str],
    picture_size: Size,
    *,
    threshold: float = THRESHOLD,
    near: float = NEAR,
    least_score: float = 0.0,
) -> list[Triple]:
    """Cut a cross-attention map into triples, the highest score first.

    attention: [words, h, w], weights of 0 or more (after a softmax, or any other scale: a word's map times a positive
    number gives the same cut). A word whose map is all 0 looks nowhere; if all are, there is no triple.
    picture_size: width and height of the upright original, in pixels; the map covers all of it, row by row.
    threshold, near: shares above 0, up to 1; see the module. least_score: triples below it are left out.
    Cells belong to one region only. Raises `InvalidInputError` for a map that is empty, not finite, negative or of
    another shape than the words, and for a setting out of range.
    """
    shares = _shares(attention, words)
    for name, value, low in (("threshold", threshold, 0.0), ("near", near, 0.0), ("least_score", least_score, -1.0)):
        if not (isinstance(value, int | float) and math.isfinite(value) and low < value <= 1.0):
            raise InvalidInputError(f"{name} is a share {'above' if low == 0 else 'from'} 0 up to 1, not {value!r}")
    if least_score < 0:
        raise InvalidInputError(f"least_score is a share from 0 up to 1, not {least_score!r}")
    original = Region.whole(*picture_size)
    largest = shares.max(axis=0)
    if not largest.any():
        return []
    on = largest >= threshold * largest.max()
    leads = (shares >= near * largest) & on
    found = []
    for cells in areas(on, leads):
        rows, columns = zip(*cells, strict=True)
        of_words = np.minimum(shares[:, rows, columns].sum(axis=1), 1.0)
        span = _run(of_words, near)
        score = float(of_words[span.start : span.stop].mean())
        if score >= least_score:
            box = _box(cells, (shares.shape[1], shares.shape[2]), picture_size)
            text = " ".join(words[span.start : span.stop])
            found.append(Triple(original.crop(box), text, span, score, tuple(cells)))
    return sorted(found, key=lambda one: (-one.score, one.cells))


def areas(on: npt.NDArray[np.bool_], leads: npt.NDArray[np.bool_]) -> list[list[Cell]]:
    """Connected areas (by edges) of `on` [h, w] whose neighbours share a leader of `leads` [words, h, w]; each sorted.

    In the order of their first cells.
    """
    height, width = on.shape
    # A set of leaders as bits of one whole number: Python's have as many as there are words.
    leaders = [
        [sum(1 << int(word) for word in np.flatnonzero(leads[:, row, column])) for column in range(width)]
        for row in range(height)
    ]
    seen = ~on
    found = []
    for y, x in np.argwhere(on).tolist():
        if seen[y, x]:
            continue
        start = (y, x)
        seen[start] = True
        area, waiting = [start], [start]
        while waiting:
            row, column = waiting.pop()
            for there in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
                inside = 0 <= there[0] < height and 0 <= there[1] < width
                if inside and not seen[there] and leaders[row][column] & leaders[there[0]][there[1]]:
                    seen[there] = True
                    area.append(there)
                    waiting.append(there)
        found.append(sorted(area))
    return found


def _shares(attention: npt.NDArray[np.floating], words: Sequence[str]) -> npt.NDArray[np.float64]:
    """float64 [words, h, w]: each word's map over its sum; a map of nothing stays 0. Raises `InvalidInputError`."""
    found = np.asarray(attention)
    if found.ndim != 3 or found.size == 0 or found.dtype.kind != "f":
        raise InvalidInputError(f"an attention map is floats [words, h, w], got {found.dtype} {found.shape}")
    if isinstance(words, str) or len(words) != len(found) or not all(isinstance(word, str) and word for word in words):
        raise InvalidInputError(f"the map has {len(found)} words; give as many that are not empty, not {words!r:.80}")
    if not np.isfinite(found).all() or (found < 0).any():
        raise InvalidInputError("attention weights are finite and not negative; take them after the softmax")
    found = found.astype(np.float64)
    # By the peak first: sums of what is near the largest float would overflow.
    peaks = found.max(axis=(1, 2), keepdims=True)
    found = np.divide(found, peaks, out=np.zeros_like(found), where=peaks > 0)
    sums = found.sum(axis=(1, 2), keepdims=True)
    shares: npt.NDArray[np.float64] = np.divide(found, sums, out=np.zeros_like(found), where=sums > 0)
    return shares


def _run(of_words: npt.NDArray[np.float64], near: float) -> range:
    """The word with the most (of equals the first), and those beside it with nearly as much."""
    best = int(of_words.argmax())
    least, start, stop = near * of_words[best], best, best + 1
    while start > 0 and of_words[start - 1] >= least:
        start -= 1
    while stop < len(of_words) and of_words[stop] >= least:
        stop += 1
    return range(start, stop)


def _box(cells: Sequence[Cell], grid: Cell, size: Size) -> tuple[int, int, int, int]:
    """left, upper, right, lower in pixels: whatever the cells touch."""
    (height, width), (across, down) = grid, size
    rows, columns = [row for row, _ in cells], [column for _, column in cells]
    left, right = min(columns) * across // width, -(-(max(columns) + 1) * across // width)
    upper, lower = min(rows) * down // height, -(-(max(rows) + 1) * down // height)
    return left, upper, right, lower
