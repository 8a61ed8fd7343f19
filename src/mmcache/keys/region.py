"""`Region`: a crop, scale or turn of a picture as a recipe, rendered once from the original.

A recipe is a chain of steps; each cuts a rectangle, resamples it, and turns it. Crops and turns compose exactly, so
they never lengthen the chain. A second resampling does, unless the first one lost nothing (nearest-neighbour
enlargement by whole factors): `resize` then `resize` is another picture than one `resize`, and so another region.

Features are not local: a region names only what a model computed on exactly these pixels. Containment and overlap
say which other regions show the same part of the picture, never that their features can stand in for each other.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.turn import Turn
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import WHOLE

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[int, int, int, int]
"""left, upper, right, lower in pixels; right and lower are outside, as in Pillow."""

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_LARGEST = 1 << 24
"""Pixels a side."""
_STEP = struct.Struct("<BB6I")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True, slots=True)
class Step:
    """Cut `box`, resample it to `scaled` (before turning) with `filter`, then turn."""

    box: Box
    scaled: tuple[int, int]
    filter: str = ""
    """One of `FILTERS`; empty = not resampled."""
    turn: Turn = Turn.NONE

    @property
    def cut(self) -> tuple[int, int]:
        """Width and height of the rectangle."""
        left, upper, right, lower = self.box
        return right - left, lower - upper

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of what comes out."""
        return self.turn.size(self.scaled)

    @property
    def enlargement(self) -> tuple[int, int] | None:
        """The whole factors of a resampling that loses nothing; (1, 1) without one; None for any other."""
        if not self.filter:
            return 1, 1
        (w, h), (W, H) = self.cut, self.scaled  # noqa: N806
        return (W // w, H // h) if self.filter == "nearest" and W % w == 0 and H % h == 0 else None


@dataclass(frozen=True, slots=True)
class Region:
    """A recipe over an upright original of `width` × `height` pixels. Start with `Region.whole`.

    The methods return new recipes in canonical form; equal pixels by composition are equal recipes.
    """

    width: int
    height: int
    steps: tuple[Step, ...]

    @staticmethod
    def whole(width: int, height: int) -> Region:
        """All of a picture of this size. Raises `InvalidInputError` unless both are from 1 to 2**24."""
        _check_size(width, height)
        return Region(width, height, (Step((0, 0, width, height), (width, height)),))

    # What it is -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the rendered picture."""
        return self.steps[-1].size

    @property
    def box(self) -> Box:
        """The rectangle of the original that it is made from. Later steps of a chain may use only a part of it."""
        return self.steps[0].box

    @property
    def is_whole(self) -> bool:
        """Whether it is the original itself."""
        step = self.steps[0]
        return len(self.steps) == 1 and not step.filter and not step.turn and step.size == (self.width, self.height)

    def canonical(self) -> bytes:
        """The recipe as bytes: version, then 26 bytes a step. Distinct recipes have distinct bytes."""
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
        left, upper, right, lower = box
        if not all(isinstance(edge, int) for edge in box):
            raise InvalidInputError(f"a box has whole numbers, got {box}")
        if not (0 <= left < right <= width and 0 <= upper < lower <= height):
            raise InvalidInputError(f"the box {box} is empty or leaves the {width} × {height} region")
        if (right - left, lower - upper) == (width, height):
            return self
        last = self.steps[-1]
        inner = last.turn.before(box, last.scaled)
        factors = last.enlargement
        if factors is not None and all(edge % factors[axis % 2] == 0 for axis, edge in enumerate(inner)):
            x, y = last.box[:2]
            l, u, r, b = (edge // factors[axis % 2] for axis, edge in enumerate(inner))  # noqa: E741
            scaled = inner[2] - inner[0], inner[3] - inner[1]
            return self._last(replace(last, box=(x + l, y + u, x + r, y + b), scaled=scaled))
        return self._then(Step(box, (right - left, lower - upper)))

    def flip_left_right(self) -> Region:
        """Mirrored."""
        return self._turned(Turn.FLIP)

    def flip_top_bottom(self) -> Region:
        """Upside down, mirrored."""
        return self._turned(Turn.FLIP_180)

    def rotate90(self, times: int = 1) -> Region:
        """Turned counter-clockwise by 90° `times`."""
        return self._turned(Turn((times % 4) * 2))

    def resize(self, size: tuple[int, int], filter: str = "bicubic") -> Region:
        """Resampled to `size` (width, height) with one of `FILTERS`. Its own size: unchanged, as in Pillow."""
        _check_size(*size)
        if filter not in FILTERS:
            raise InvalidInputError(f"no filter {filter!r}; there are {', '.join(FILTERS)}")
        if size == self.size:
            return self
        last = self.steps[-1]
        inner = last.turn.size(size)
        if inner == last.cut and filter == "nearest" and last.enlargement is not None:
            return self._last(replace(last, scaled=inner, filter=""))  # an enlargement taken back
        wanted = replace(last, scaled=inner, filter=filter)
        # A turn commutes with whole-factor enlargement only: other kernels are not exactly symmetric in Pillow.
        exact = wanted.enlargement is not None and last.enlargement is not None
        return (
            self._last(wanted)
            if exact or (not last.filter and not last.turn)
            else self._then(_all_of(self.size, size, filter))
        )

    def _turned(self, turn: Turn) -> Region:
        last = self.steps[-1]
        return self._last(replace(last, turn=last.turn.then(turn)))

    def _last(self, step: Step) -> Region:
        idle = step.cut == step.scaled and not step.turn and not step.filter
        if idle and len(self.steps) > 1 and step.cut == self.steps[-2].size:
            return replace(self, steps=self.steps[:-1])
        if len(self.steps) > 1 and not step.filter and step.cut == self.steps[-2].size:
            return replace(self, steps=self.steps[:-1])._turned(step.turn)
        return replace(self, steps=(*self.steps[:-1], step))

    def _then(self, step: Step) -> Region:
        return replace(self, steps=(*self.steps, step))

    # Pixels ---------------------------------------------------------------------------------------------------------

    def render(self, image: Image) -> Image:
        """The region of `image`, its upright original. Raises `InvalidInputError` when that has another size."""
        from PIL.Image import Resampling, Transpose

        if getattr(image, "size", None) != (self.width, self.height) or not hasattr(image, "crop"):
            raise InvalidInputError(f"this region is of a PIL picture of {self.width} × {self.height} pixels")
        for step in self.steps:
            if step.box != (0, 0, *image.size):
                image = image.crop(step.box)
            if step.filter:
                image = image.resize(step.scaled, Resampling[step.filter.upper()])
            for name in step.turn.transposes:
                image = image.transpose(Transpose[name])
        return image

    # Where it lies --------------------------------------------------------------------------------------------------

    def contains(self, other: Region) -> bool:
        """Whether all of `other`'s source rectangle lies in this one's, in the same original."""
        (l, u, r, b), (L, U, R, B) = self.box, other.box  # noqa: E741, N806
        return l <= L and u <= U and r >= R and b >= B and (self.width, self.height) == (other.width, other.height)

    def overlaps(self, other: Region) -> bool:
        """Whether the source rectangles share a pixel of the same original."""
        return self.overlaps_box(other.box) and (self.width, self.height) == (other.width, other.height)

    def overlaps_box(self, box: Box) -> bool:
        """Whether the source rectangle and `box`, in the original's pixels, share a pixel."""
        (l, u, r, b), (L, U, R, B) = self.box, box  # noqa: E741, N806
        return max(l, L) < min(r, R) and max(u, U) < min(b, B)


@lru_cache(maxsize=65_536)
def _digest(region: Region, salt: bytes) -> bytes:
    if region.is_whole:
        return WHOLE
    return blake3(framed("region", region.canonical()), key=salt).digest(length=DIGEST_BYTES)


def _all_of(size: tuple[int, int], scaled: tuple[int, int], filter: str) -> Step:
    return Step((0, 0, *size), scaled, filter)


def _check_size(width: int, height: int) -> None:
    if not (
        isinstance(width, int)
        and isinstance(height, int)
        and min(width, height) >= 1
        and max(width, height) <= _LARGEST
    ):
        raise InvalidInputError(f"a size is 1 to {_LARGEST} whole pixels a side, got {width} × {height}")


def tiles(width: int, height: int, tile: int | tuple[int, int], overlap: int = 0) -> list[Region]:
    """A grid of regions over a picture, row by row; tiles at the right and lower edge may be smaller.

    `tile`: pixels a side, or (width, height); neighbours share `overlap` pixels. Raises `InvalidInputError`.
    """
    across, down = (tile, tile) if isinstance(tile, int) else tile
    if not 0 <= overlap < min(across, down):
        raise InvalidInputError(f"overlap must be from 0 to less than the tile's {min(across, down)} pixels")
    whole = Region.whole(width, height)
    return [
        whole.crop((x, y, min(width, x + across), min(height, y + down)))
        for y in range(0, max(1, height - overlap), down - overlap)
        for x in range(0, max(1, width - overlap), across - overlap)
    ]
