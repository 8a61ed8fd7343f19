"""Two pictures: the same one saved again, the same one slightly cropped, or another one. Without a model.

A sketch is the picture averaged over a grid of at most 64 × 64 cells, brightness apart from colour. Two sketches
agree when *no single cell* differs by more than what a lossy codec or a resizer does to it. Means over the picture, and
hashes of its coarse spectrum (pHash, dHash), forgive a changed object that is small; here one cell is enough to refuse.

What a gate of looks cannot see: what is smaller than about a cell. A sketch of a page does not hold its letters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.likeness.base import Nearness
from mmcache.likeness.crop import framing
from mmcache.likeness.pixels import Pixels, pixels
from mmcache.likeness.planes import Planes, agree, halved, varied
from mmcache.model.errors import CorruptFrameError

Floats = npt.NDArray[np.float32]

SIDES = (64, 32, 16)
"""Cells a side: the finest grid whose cells are wide enough. Colour has half as many."""
LEAST_CELL = 1.75
"""Pixels."""
LEAST_PIXELS = 28
"""A picture of fewer pixels a side matches nothing but itself."""
MOST_ASPECT = 6.0
"""So does a picture that is longer than this times its width: its cells would hide too much."""
MOST_SCALED = 4.0
"""Times that one side may be longer than the other picture's: a thumbnail lacks what questions are asked about."""
LEAST_COSINE = 0.7
"""Between the vectors of two pictures one of which may be a crop of the other; real crops keep above 0.85."""
_VERSION = 1
_BLURRED = 8
DIMENSIONS = 3 * _BLURRED**2
"""Of `PictureSketch.vector`."""

# ITU-R BT.601, as JPEG has it.
_TO_YCBCR = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32
)  # fmt: skip


class PictureSketch(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a picture to know it again: 6 KB from 112 pixels a side on, less below."""

    version: int
    width: int
    height: int
    """Pixels."""
    kind: str
    side: int
    """Cells a side; 0 for a picture that nothing can be said about: it is like no other."""
    luma: bytes
    """uint8 [side, side]."""
    chroma: bytes
    """uint8 [2, side / 2, side / 2]: Cb, Cr, each plus 128."""
    alpha: bytes
    """uint8 [side / 2, side / 2], or nothing where all is opaque."""

    def to_bytes(self) -> bytes:
        """As msgpack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> PictureSketch:
        """The sketch that `to_bytes` wrote. Raises `CorruptFrameError` for anything else."""
        try:
            sketch = msgspec.msgpack.decode(data, type=PictureSketch)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CorruptFrameError(f"these {len(data)} bytes are no picture sketch; drop them") from error
        half = sketch.side**2 // 4
        sizes = len(sketch.luma), len(sketch.chroma), len(sketch.alpha)
        right = sketch.side in (0, *SIDES) and sizes in ((4 * half, 2 * half, 0), (4 * half, 2 * half, half))
        if sketch.version != _VERSION or not right or min(sketch.width, sketch.height) < 0:
            raise CorruptFrameError(f"a picture sketch of version {sketch.version}, sizes {sizes}: drop it")
        return sketch

    @property
    def comparable(self) -> bool:
        """Whether it can be like any other picture: no blank, tiny or very long one can."""
        return self.side > 0

    @property
    def vector(self) -> Floats:
        """float32 [192], L2-normalised (zeros where not `comparable`): near in cosine for crops and copies.

        An 8 × 8 picture of overlapping, tapered cells, brightness and both colours, less most of its mean (Torralba,
        Fergus & Freeman 2008, "80 million tiny images").
        """
        if not self.comparable:
            return np.zeros(DIMENSIONS, np.float32)
        planes = planes_of(self)
        small = np.concatenate([_blur(p) @ p @ _blur(p).T for p in (planes.luma[None], planes.chroma)]) - 128
        means = small.mean(axis=(1, 2), keepdims=True)
        found = (small - np.float32(0.75) * means).ravel()
        return np.asarray(found / max(float(np.linalg.norm(found)), 1e-6), np.float32)


def _blur(planes: Floats) -> Floats:
    return _taper(planes.shape[-1])


@lru_cache(maxsize=8)
def _taper(side: int) -> Floats:
    """Float32 [8, side]: averages under overlapping bells."""
    centres = (np.arange(_BLURRED) + 0.5) / _BLURRED
    cells = (np.arange(side) + 0.5) / side
    bells = np.exp(-0.5 * ((cells - centres[:, None]) * _BLURRED / 0.75) ** 2)
    return np.asarray(bells / bells.sum(axis=1, keepdims=True), np.float32)


@lru_cache(maxsize=512)
def _averages(size: int, cells: int) -> Floats:
    """Float32 [cells, size]: the mean over equal parts, whole samples weighted by how much of them lies inside."""
    edges, samples = np.linspace(0, size, cells + 1), np.arange(size)
    inside = np.minimum(edges[1:, None], samples + 1) - np.maximum(edges[:-1, None], samples)
    return np.asarray(np.clip(inside, 0, None) * (cells / size), np.float32)


def describe(picture: Any) -> PictureSketch:
    """The sketch of a canonical picture: an upright `PIL.Image`, or an array (see `pixels` for which).

    Never raises for a picture: one that cannot be judged gets a sketch that is like no other.
    """
    found = pixels(picture)
    if found is None:
        return PictureSketch(_VERSION, 0, 0, "", 0, b"", b"", b"")
    short, long = sorted((found.width, found.height))
    if short < LEAST_PIXELS or long > MOST_ASPECT * short:
        return _blind(found)
    side = next((side for side in SIDES if short >= LEAST_CELL * side), SIDES[-1])
    planes = _grid(found, side)
    if not varied(planes):
        return _blind(found)
    luma, chroma, alpha = (_bytes(p) for p in (planes.luma, planes.chroma, planes.alpha))
    return PictureSketch(_VERSION, found.width, found.height, found.kind, side, luma, chroma, alpha)


def _blind(found: Pixels) -> PictureSketch:
    return PictureSketch(_VERSION, found.width, found.height, found.kind, 0, b"", b"", b"")


def _grid(found: Pixels, side: int) -> Planes:
    rows, columns, channels = found.rgb.shape
    narrow = (_averages(rows, side) @ found.rgb.reshape(rows, columns * channels)).reshape(side, columns, channels)
    cells = _averages(columns, side) @ narrow  # [side, side, channels]
    ycc = cells @ _TO_YCBCR.T if channels == 3 else np.concatenate([cells, np.zeros((side, side, 2), np.float32)], 2)
    chroma = halved(np.moveaxis(ycc[:, :, 1:], 2, 0)) + 128
    alpha = None
    if found.alpha is not None:
        alpha = np.asarray(_averages(rows, side // 2) @ found.alpha @ _averages(columns, side // 2).T, np.float32)
    return Planes(np.asarray(ycc[:, :, 0]), chroma, alpha)


def _bytes(plane: Floats | None) -> bytes:
    return b"" if plane is None else np.clip(np.rint(plane), 0, 255).astype(np.uint8).tobytes()


def planes_of(sketch: PictureSketch, side: int | None = None) -> Planes:
    """A comparable sketch's grids as floats, averaged down to `side` cells."""
    half = sketch.side // 2
    luma = np.frombuffer(sketch.luma, np.uint8).reshape(sketch.side, sketch.side).astype(np.float32)
    chroma = np.frombuffer(sketch.chroma, np.uint8).reshape(2, half, half).astype(np.float32)
    alpha = np.frombuffer(sketch.alpha, np.uint8).reshape(half, half).astype(np.float32) if sketch.alpha else None
    planes = Planes(luma, chroma, alpha)
    while side is not None and planes.luma.shape[0] > side:
        planes = planes.halved()
    return planes


def compare(asked: PictureSketch, stored: PictureSketch) -> Nearness:
    """How near two pictures are by their looks: `REENCODED`, `TRIMMED` or `UNLIKE`; symmetric.

    Never `SAME`: that is a matter of digests. A sketch is `REENCODED` from itself, unless it is not `comparable`.
    """
    if not asked.comparable or not stored.comparable:
        return Nearness.UNLIKE
    if asked.kind != stored.kind or bool(asked.alpha) != bool(stored.alpha):
        return Nearness.UNLIKE
    if asked == stored:
        return Nearness.REENCODED
    one, other = sorted((asked, stored), key=lambda s: (s.width, s.height, s.luma, s.chroma, s.alpha))
    scale = other.width / one.width
    if not 1 / MOST_SCALED <= scale <= MOST_SCALED:
        return Nearness.UNLIKE
    side = min(one.side, other.side)
    first, second = planes_of(one, side), planes_of(other, side)
    cell = min(one.width, one.height, other.width, other.height) / side
    if _same_shape(one, other) and agree(first, second, cell):
        return Nearness.REENCODED
    if float(one.vector @ other.vector) < LEAST_COSINE:
        return Nearness.UNLIKE
    stretch = scale * one.height / other.height
    return Nearness.TRIMMED if framing(first, second, stretch) is not None else Nearness.UNLIKE


def _same_shape(one: PictureSketch, other: PictureSketch) -> bool:
    """Whether the ratios of the sides are equal, but for rounding to whole pixels."""
    ratio = (one.width * other.height) / (one.height * other.width)
    short = min(one.width, one.height, other.width, other.height)
    return abs(ratio - 1) <= 1.5 / short + 0.005
