"""Whether one picture is a slight crop of another, and which: offset and scale, found by search and refined.

The second picture is read through a window: share u of the first picture's width shows share `offset + scale · u` of
the second's. Every window that leaves enough in common is tried on a coarse grid, the best ones are refined on the fine
grid by Gauss and Newton's method (Lucas & Kanade 1981), and then every cell of what both show must agree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmcache.likeness.planes import Allowed, Planes, within

Floats = npt.NDArray[np.float32]

MOST_TRIMMED = 0.105
"""Share of a side that may be cut off at one end, of either picture (rounded to pixels: 10 %)."""
LEAST_COMMON = 0.79
"""What both show, as a share of one's area times as a share of the other's: 5 % off all round leaves 81 %."""
MOST_SHIFTED = 0.05
"""The same where each picture shows what the other lacks, on opposite ends: that is a move rather than a crop."""
MOST_STRETCH = 0.05
"""By which the scales of width and height may differ: crops are rounded to pixels."""
_COARSE = 16
_FINE = 64
"""From so many cells a side on they hold detail that is lost between two grids; both are softened before they are
compared."""
_ALLOWED = Allowed((10.0, 0.2), (14.0, 0.2))
"""Wider than for copies that are framed alike: cells that do not coincide average different pixels."""
_STEP = 0.02
_STARTS = 3
_FARTHEST = 12.0
"""Root mean square difference in levels, through the best window, beyond which it need not be looked at closer."""
_LAST_ROUNDS = 3
_ROUNDS = 6
_LEAST_MOVED = 0.004
"""Share of a side (a quarter of a cell) that some edge must move by: what differs as it stands is no crop."""


class Window(NamedTuple):
    """Shares of the second picture's sides that the first picture's span."""

    left: float
    width: float
    top: float
    height: float


def framing(one: Planes, other: Planes, stretch: float) -> Window | None:
    """The window of `other` that `one` shows, or None where there is none.

    `stretch`: (other's width / one's width) / (other's height / one's height), in pixels: scales are the same in both
    directions, so a window's height is its width times this.
    """
    if not 0.75 <= stretch <= 1.34:
        return None
    a, b = _mixed(one), _mixed(other)
    side = min(a.shape[0], 2 * _COARSE)
    small_a, small_b = _reduced(a, side), _reduced(b, side)
    tried: list[Window] = []
    for window in _starts(_reduced(a, _COARSE), _reduced(b, _COARSE), stretch):
        window, off = _refined(small_a, small_b, window, _ROUNDS)
        if off > _FARTHEST or any(_close(window, done) for done in tried):
            continue
        tried.append(window)
        if a.shape[0] > side:
            window, _ = _refined(a, b, window, _LAST_ROUNDS)
        if _allowed(window, stretch) and _agree(one, other, window):
            return window
    return None


def _close(one: Window, other: Window) -> bool:
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) < 0.003


def _mixed(planes: Planes) -> Floats:
    """One plane to align by: brightness with some of the colours in it, less the whole's mean."""
    colours = 0.8 * planes.chroma[0] + 0.6 * planes.chroma[1]
    return np.asarray(planes.luma + np.repeat(np.repeat(colours, 2, axis=0), 2, axis=1), np.float32)


def _reduced(plane: Floats, side: int) -> Floats:
    k = plane.shape[0] // side
    return np.asarray(plane.reshape(side, k, side, k).mean(axis=(1, 3)), np.float32)


@lru_cache(maxsize=1)
def _spans() -> tuple[npt.NDArray[np.float64], Floats, Floats]:
    """[k, 2]: every (offset, scale) along one side that is worth a try; how to read each on the coarse grid."""
    found = []
    for scale in 1.02 ** np.arange(-11, 12):
        least = max(-MOST_TRIMMED * scale, 1 - MOST_TRIMMED - scale)
        most = min(MOST_TRIMMED, 1 + MOST_TRIMMED * scale - scale)
        if least <= most:
            found += [(offset, scale) for offset in np.linspace(least, most, 2 + int((most - least) / _STEP))]
    spans = np.array(found)
    weights, inside = _reading(spans[:, 0], spans[:, 1], _COARSE)
    return spans, weights, inside.astype(np.float32)


def _starts(one: Floats, other: Floats, stretch: float) -> list[Window]:
    """The most promising windows, best first, by mean absolute difference over what both show."""
    spans, weights, inside = _spans()
    scales = np.log(spans[:, 1])
    x, y = np.nonzero(np.abs(scales[:, None] + np.log(stretch) - scales) <= 0.015)
    columns = weights @ other.T  # [k, 16 of one's columns, 16 of other's rows]
    shown = weights[y] @ np.swapaxes(columns, 1, 2)[x]  # [m, 16, 16]
    seen = inside[y][:, :, None] * inside[x][:, None, :]
    off = (np.abs(shown - one) * seen).sum(axis=(1, 2)) / seen.sum(axis=(1, 2))
    best = [i for i in np.argsort(off, kind="stable")[:_STARTS] if off[i] <= 2 * _FARTHEST]
    return [Window(*(float(v) for v in (*spans[x[i]], *spans[y[i]]))) for i in best]


def _reading(
    offsets: npt.NDArray[np.float64], scales: npt.NDArray[np.float64], side: int
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """[k, side, side] weights that read other's cells where one's centres fall (cubic, Keys 1981); [k, side] inside."""
    centres = (offsets[:, None] + scales[:, None] * ((np.arange(side) + 0.5) / side)) * side - 0.5
    away = np.abs(centres[:, :, None] - np.arange(side))
    near, far = (1.5 * away - 2.5) * away**2 + 1, ((-0.5 * away + 2.5) * away - 4) * away + 2
    weights = np.where(away < 1, near, np.where(away < 2, far, 0.0))
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), 0.25)  # at the rim and beyond it
    return weights.astype(np.float32), (centres >= 0) & (centres <= side - 1)


def _through(plane: Floats, window: Window) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """`plane` [..., n, n] seen through `window`; which rows and which columns of it there are."""
    weights, inside = _reading(
        np.array([window.left, window.top]), np.array([window.width, window.height]), plane.shape[-1]
    )
    return weights[1] @ plane @ weights[0].T, inside[1], inside[0]


def _refined(one: Floats, other: Floats, window: Window, rounds: int) -> tuple[Window, float]:
    """Moves the window's four sides until the difference no longer falls; and its root mean square."""
    side = one.shape[0]
    centres = ((np.arange(side) + 0.5) / side).astype(np.float32)
    best, least = window, np.inf
    for _ in range(rounds):
        shown, rows, columns = _through(other, window)
        seen = np.outer(rows, columns).astype(np.float32)
        error = (shown - one) * seen
        square = float(np.vdot(error, error)) / max(float(seen.sum()), 1.0)
        if square >= least * 0.998:
            break
        best, least = window, square
        gx, gy = np.zeros_like(shown), np.zeros_like(shown)
        gx[:, 1:-1] = (shown[:, 2:] - shown[:, :-2]) * np.float32(0.5 * side / window.width)
        gy[1:-1] = (shown[2:] - shown[:-2]) * np.float32(0.5 * side / window.height)
        gx *= seen
        gy *= seen
        slopes = np.stack([gx, gx * centres, gy, gy * centres[:, None]]).reshape(4, -1)
        normal = slopes @ slopes.T
        normal[np.diag_indices(4)] = normal[np.diag_indices(4)] * 1.001 + 1e-3
        step = np.clip(np.linalg.solve(normal, slopes @ error.ravel()), -0.03, 0.03)
        window = Window(*(float(a - b) for a, b in zip(window, step, strict=True)))
        if window.width < 0.5 or window.height < 0.5:
            break
    return best, float(np.sqrt(least))


def _allowed(window: Window, stretch: float) -> bool:
    if abs(np.log(window.width * stretch / window.height)) > MOST_STRETCH:
        return False
    if max(abs(v) for offset, scale in (window[:2], window[2:]) for v in (offset, 1 - offset - scale)) < _LEAST_MOVED:
        return False
    common = 1.0
    for offset, scale in (window[:2], window[2:]):
        ends = (offset, 1 - offset - scale)  # what of the other's ends is cut off; below 0: of the one's own
        if any(end > MOST_TRIMMED or -end / scale > MOST_TRIMMED for end in ends):
            return False
        if min(ends) < 0 < max(ends) and min(max(ends), -min(ends) / scale) > MOST_SHIFTED:
            return False
        shared = min(offset + scale, 1.0) - max(offset, 0.0)
        common *= shared * shared / scale
    return common >= LEAST_COMMON


def _agree(one: Planes, other: Planes, window: Window) -> bool:
    """Whether every cell that both show is alike. The outermost ring is left out: it averages what the other lacks."""
    pairs = [(one.luma, other.luma, _ALLOWED.luma), (one.chroma, other.chroma, _ALLOWED.chroma)]
    if one.alpha is not None and other.alpha is not None:
        pairs.append((one.alpha, other.alpha, _ALLOWED.luma))
    fine = one.luma.shape[0] >= _FINE
    for mine, yours, allowed in pairs:
        if fine:
            mine, yours = _softened(mine), _softened(yours)
        shown, rows, columns = _through(yours, window)
        r, c = np.nonzero(rows)[0], np.nonzero(columns)[0]
        box = (..., slice(r[0] + 1, r[-1]), slice(c[0] + 1, c[-1]))
        if not within(mine[box], shown[box], allowed):
            return False
    return True


def _softened(planes: Floats) -> Floats:
    """Weighted 1 2 1 in both directions: cells of two grids that do not coincide agree no finer than that."""
    padded = np.pad(planes, [(0, 0)] * (planes.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    rows = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    return np.asarray((rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:]) / np.float32(16), np.float32)
