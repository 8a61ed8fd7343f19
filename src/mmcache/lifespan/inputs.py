"""What is known of a key when it is asked how long it will stay hot: uses in intervals of it and of what is like it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]

BITS = 64
"""Of an image hash (US-HASH, or 64 signs of a picture's embedding)."""
CHANNELS = 10
OWN, SEEN, WATCHED, TEXT, IMAGE, TRAFFIC = range(6)
"""Channels by name; the last four are the time of day and of week."""
MOST_INTERVALS = 512
MOST_GROUPS = 256
_DAY, _WEEK = 86_400.0, 7 * 86_400.0


@dataclass(frozen=True)
class LifeScale:
    """In what time is counted. Hot: used at least `hot_uses` times within `day` intervals."""

    interval_seconds: float = 6 * 3600.0
    intervals: int = 28
    """That are looked back on: seven days."""
    day: int = 4
    """Intervals over which it is said whether a key is hot."""
    horizons: tuple[int, int] = (4, 12)
    """Intervals after which it is asked whether a key is still hot: 24 and 72 h."""
    hot_uses: int = 2
    """Two: one of them was a hit."""
    calendar: bool = True
    """Whether times are Unix times, whose hours and weekdays mean something."""

    def __post_init__(self) -> None:
        """Raises `InvalidInputError` for a scale that cannot be."""
        whole = (self.intervals, self.day, self.hot_uses, *self.horizons)
        if len(self.horizons) != 2 or not all(type(count) is int for count in whole):
            raise InvalidInputError(f"a scale counts in whole numbers, and has two horizons, not {self}")
        near, far = self.horizons
        sound = (
            math.isfinite(self.interval_seconds)
            and self.interval_seconds > 0
            and 1 <= self.day <= self.intervals <= MOST_INTERVALS
            and self.day <= near < far <= MOST_INTERVALS
            and self.hot_uses >= 1
        )
        if not sound:
            raise InvalidInputError(f"a scale needs 1 <= day <= intervals, day <= near < far, not {self}")

    @property
    def hours(self) -> tuple[float, float]:
        """The horizons in hours."""
        near, far = self.horizons
        return near * self.interval_seconds / 3600.0, far * self.interval_seconds / 3600.0


@dataclass(frozen=True)
class LifeInputs:
    """Of n keys at one moment, or at n moments."""

    series: Floats
    """float32 [n, CHANNELS, intervals], oldest first."""
    text: Floats
    """float32 [n, width]: text embeddings of norm 1; zeros where there is none."""
    image: Floats
    """float32 [n, 64]: ±1 a bit of the image hash; zeros where there is none."""

    def of(self, rows: npt.NDArray[np.intp] | slice) -> LifeInputs:
        """Some of them."""
        return LifeInputs(self.series[rows], self.text[rows], self.image[rows])


def signs(codes: npt.ArrayLike) -> Floats:
    """uint64 [n] → float32 [n, 64]: +1 where bit i is set, else −1."""
    raw = np.ascontiguousarray(codes, "<u8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(raw, axis=1, bitorder="little").astype(np.float32) * 2 - 1


def unit(vectors: npt.ArrayLike) -> Floats:
    """float32 [n, width] of norm 1; what is nothing stays nothing. Raises `InvalidInputError` for other input."""
    with np.errstate(over="ignore"):
        rows = np.atleast_2d(np.asarray(vectors, np.float32))
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InvalidInputError("embeddings are finite numbers [n, width]")
    scale = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    scaled = rows / np.where(scale > 0, scale, 1.0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0), np.float32)


def nearest(vectors: Floats, centres: Floats) -> Integers:
    """int64 [n]: the centre nearest to each row, by product; −1 for rows of zeros, and without centres."""
    if not len(centres) or not len(vectors):
        return np.full(len(vectors), -1, np.int64)
    found = (vectors @ centres.T).argmax(axis=1)
    return np.where(vectors.any(axis=1), found, -1).astype(np.int64)


def series(
    scale: LifeScale,
    own: npt.ArrayLike,
    seen: npt.ArrayLike,
    watched: int,
    text: npt.ArrayLike,
    image: npt.ArrayLike,
    traffic: npt.ArrayLike,
    end: float,
) -> Floats:
    """float32 [n, CHANNELS, intervals], from the last L = `scale.intervals` intervals, which end at `end` (seconds).

    own [n, L]: uses of each key. seen [n]: in how many of them it was known. watched: in how many anybody counted.
    text, image [n, L]: how much hotter than an average group is what is like it, as a logarithm; 0 = nothing known.
    traffic [n, L] or [L]: uses of all keys.
    """
    own = np.asarray(own, np.float32)
    out = np.zeros((len(own), CHANNELS, scale.intervals), np.float32)
    ages = np.arange(scale.intervals, 0, -1)
    here = ages <= watched
    out[:, OWN] = np.log1p(own)
    out[:, SEEN] = ages <= np.asarray(seen)[:, None]
    out[:, WATCHED] = here
    out[:, TEXT], out[:, IMAGE] = text, image
    flow = np.broadcast_to(np.asarray(traffic, np.float32), own.shape) * here
    usual = flow.sum(axis=1, keepdims=True) / max(1, int(here.sum()))
    out[:, TRAFFIC] = np.log((flow + 1.0) / (usual + 1.0)) * here
    if scale.calendar:
        middle = end - (ages - 0.5) * scale.interval_seconds
        for place, period in enumerate((_DAY, _WEEK)):
            phase: Floats = np.asarray(2 * np.pi * (middle % period) / period, np.float32)
            out[:, 6 + 2 * place], out[:, 7 + 2 * place] = np.sin(phase), np.cos(phase)
    return out


def heat_of_alike(groups: npt.ArrayLike, own: npt.ArrayLike, of: Integers) -> Floats:
    """float32 [n, L]: ln of how much hotter each key's group is than the mean group, the key itself left out.

    groups [K, L]: uses of each group; own [n, L]; of [n]: the group of each key, −1 = none, which gives 0.
    """
    groups, own = np.asarray(groups, np.float32), np.asarray(own, np.float32)
    if not len(groups):
        return np.zeros_like(own)
    mean = groups.mean(axis=0)
    others = np.maximum(groups[of] - own, 0.0)
    found = np.log((others + 1.0) / (mean + 1.0))
    found[np.asarray(of) < 0] = 0.0
    return np.asarray(found, np.float32)
