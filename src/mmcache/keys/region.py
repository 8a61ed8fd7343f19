"""`Region`: a crop, scale or turn of a picture as a recipe, rendered once from the original.

Crops and turns compose exactly. A second resampling makes another region than one alone, unless the first lost
nothing; see `keys.recipe`. Features are not local: a region names only what a model computed on exactly these pixels.
Containment and overlap say which other regions show the same part of the picture, never that their features can
stand in for each other.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from blake3 import blake3

from mmcache.keys import recipe
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.recipe import Box, Chain, Size
from mmcache.keys.turn import Turn
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import WHOLE

if TYPE_CHECKING:
    from PIL.Image import Image

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
LARGEST = 1 << 24
"""Pixels a side."""
_STEP = struct.Struct("<BB6I")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True, slots=True)
class Region:
    """A recipe over an upright original of `width` × `height` pixels. Start with `Region.whole`.

    The methods return new recipes in normal form.
    """

    width: int
    height: int
    steps: Chain

    @staticmethod
    def whole(width: int, height: int) -> Region:
        """All of a picture of this size. Raises `InvalidInputError` unless both are from 1 to 2**24."""
        _check_size(width, height)
        return Region(width, height, (recipe.whole((width, height)),))

    # What it is -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> Size:
        """Width and height of the rendered picture."""
        return self.steps[-1].size

    @property
    def box(self) -> Box:
        """The rectangle of the original that it is made from. A later step of a chain may use only a part of it."""
        return self.steps[0].box

    @property
    def is_whole(self) -> bool:
        """Whether it is the original itself."""
        return self.steps == (recipe.whole((self.width, self.height)),)

    def canonical(self) -> bytes:
        """The recipe as bytes: a version, then 26 bytes a step. Distinct recipes have distinct bytes."""
        kinds = ("", *FILTERS)
        return b"R1" + b"".join(_STEP.pack(kinds.index(s.filter), s.turn, *s.box, *s.scaled) for s in self.steps)

    def digest(self, salt: bytes) -> bytes:
        """16 bytes keyed with the realm's salt; `WHOLE` for the original itself, which thus shares its key."""
        return _digest(self, salt)

    def interchange_id(self, original: bytes) -> int:
        """A 64-bit id for people and other programs: FNV-1a-64 over the first 8 bytes of SHA-256 of the original's
        encoded bytes, then `canonical()`. Equality of blocks never rests on it.
        """
        found = _FNV_OFFSET
        for byte in hashlib.sha256(original).digest()[:8] + self.canonical():
            found = ((found ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
        return found

    # Making others --------------------------------------------------------------------------------------------------

    def crop(self, box: Box) -> Region:
        """A rectangle of this region, in its own pixels. Raises `InvalidInputError` unless inside and not empty."""
        width, height = self.size
        if len(box) != 4 or not all(type(edge) is int for edge in box):
            raise InvalidInputError(f"a box is four whole numbers (left, upper, right, lower), got {box}")
        left, upper, right, lower = box
        if not (0 <= left < right <= width and 0 <= upper < lower <= height):
            raise InvalidInputError(f"the box {box} is empty or leaves the {width} × {height} region")
        return replace(self, steps=recipe.cut(self.steps, box))

    def flip_left_right(self) -> Region:
        """Mirrored."""
        return replace(self, steps=recipe.turned(self.steps, Turn.FLIP))

    def flip_top_bottom(self) -> Region:
        """Mirrored upside down."""
        return replace(self, steps=recipe.turned(self.steps, Turn.FLIP_180))

    def rotate90(self, times: int = 1) -> Region:
        """Turned counter-clockwise by 90° `times`."""
        return replace(self, steps=recipe.turned(self.steps, Turn((times % 4) * 2)))

    def resize(self, size: Size, filter: str = "bicubic") -> Region:
        """Resampled to `size` (width, height) with one of `FILTERS`. Its own size: unchanged, as in Pillow."""
        _check_size(*size)
        if filter not in FILTERS:
            raise InvalidInputError(f"no filter {filter!r}; there are {', '.join(FILTERS)}")
        return replace(self, steps=recipe.resampled(self.steps, size, filter))

    # Pixels ---------------------------------------------------------------------------------------------------------

    def render(self, image: Image) -> Image:
        """The region of `image`, its upright original. Raises `InvalidInputError` when that has another size."""
        from PIL.Image import Resampling, Transpose

        if getattr(image, "size", None) != (self.width, self.height) or not hasattr(image, "crop"):
            raise InvalidInputError(f"this region is of a PIL picture of {self.width} × {self.height} pixels")
        for step in self.steps:
            if step.box != (0, 0, *image.size):
                image = image.crop(step.box)
            for name in step.turn.transposes:
                image = image.transpose(Transpose[name])
            if step.filter:
                image = image.resize(step.scaled, Resampling[step.filter.upper()])
        return image

    # Where it lies --------------------------------------------------------------------------------------------------

    def contains(self, other: Region) -> bool:
        """Whether all of `other`'s source rectangle lies in this one's, in an original of the same size."""
        left, upper, right, lower = self.box
        x, y, x_end, y_end = other.box
        inside = left <= x and upper <= y and x_end <= right and y_end <= lower
        return inside and (self.width, self.height) == (other.width, other.height)

    def overlaps(self, other: Region) -> bool:
        """Whether the source rectangles share a pixel, in an original of the same size."""
        return self.overlaps_box(other.box) and (self.width, self.height) == (other.width, other.height)

    def overlaps_box(self, box: Box) -> bool:
        """Whether the source rectangle and `box`, in the original's pixels, share a pixel."""
        left, upper, right, lower = self.box
        x, y, x_end, y_end = box
        return max(left, x) < min(right, x_end) and max(upper, y) < min(lower, y_end)


@lru_cache(maxsize=65_536)
def _digest(region: Region, salt: bytes) -> bytes:
    if region.is_whole:
        return WHOLE
    return blake3(framed("region", region.canonical()), key=salt).digest(length=DIGEST_BYTES)


def _check_size(width: int, height: int) -> None:
    if (
        type(width) is not int
        or type(height) is not int
        or not 1 <= min(width, height) <= max(width, height) <= LARGEST
    ):
        raise InvalidInputError(f"a size is 1 to {LARGEST} whole pixels a side, got {width} × {height}")


def tiles(width: int, height: int, tile: int | Size, overlap: int = 0) -> list[Region]:
    """A grid of regions over a picture, row by row; tiles at the right and lower edge may be smaller.

    `tile`: pixels a side, or (width, height); neighbours share `overlap` pixels. Raises `InvalidInputError`.
    """
    across, down = (tile, tile) if isinstance(tile, int) else tile
    _check_size(across, down)
    if not 0 <= overlap < min(across, down):
        raise InvalidInputError(f"overlap must be from 0 to less than the tile's {min(across, down)} pixels")
    original = Region.whole(width, height)
    return [
        original.crop((x, y, min(width, x + across), min(height, y + down)))
        for y in range(0, max(1, height - overlap), down - overlap)
        for x in range(0, max(1, width - overlap), across - overlap)
    ]


def dynamic_tiles(width: int, height: int, tile: int = 448, most: int = 12, thumbnail: bool = True) -> list[Region]:
    """High-resolution tiling as in InternVL 1.5: the grid of at most `most` tiles whose shape is nearest the picture's
    (of equals, the larger one if the picture has more than half its pixels), the picture resized onto it, its tiles
    row by row, and, with more than one, the whole picture as one tile last.

    Source: Chen et al., "How Far Are We to GPT-4V?", arXiv:2404.16821. Raises `InvalidInputError`.
    """
    original = Region.whole(width, height)
    _check_size(tile, most)
    grids = sorted(
        ((i, j) for i in range(1, most + 1) for j in range(1, most // i + 1)), key=lambda grid: grid[0] * grid[1]
    )
    across, down, nearest = 1, 1, float("inf")
    for i, j in grids:
        difference = abs(width / height - i / j)
        larger = difference == nearest and width * height > 0.5 * tile * tile * i * j
        if difference < nearest or larger:
            across, down, nearest = i, j, difference
    scaled = original.resize((across * tile, down * tile))
    found = [
        scaled.crop((x * tile, y * tile, (x + 1) * tile, (y + 1) * tile)) for y in range(down) for x in range(across)
    ]
    return [*found, original.resize((tile, tile))] if thumbnail and len(found) > 1 else found
