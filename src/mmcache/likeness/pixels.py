"""Any picture → colours as displayed, sampled evenly: what sketches are made of. Pillow is never imported.

| given as | becomes |
|---|---|
| uint8 [h, w] or [h, w, 1…4]; also [1, 3 or 4, h, w] | grey, grey + alpha, RGB, RGBA |
| uint16 | the same, divided by 257 |
| floats within 0…1, or within 0…255 | the same, as shares or as levels |
| Pillow's 1, L, LA, P, RGB, RGBA, I;16, F | by the rules above |
| CMYK, YCbCr, HSV | RGB by Pillow's own conversion |
| LAB, I, floats beyond 0…255, NaN, other shapes and types, nothing at all | `None`: cannot be told apart by looks |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MOST_SAMPLES = 768
"""Samples along a side; larger pictures are sampled evenly, at the centres of equal parts."""
_CONVERTED = frozenset({"CMYK", "YCbCr", "HSV", "1", "P", "PA", "La", "RGBa", "RGBX"})
_REFUSED = frozenset({"LAB", "I"})


class Pixels(NamedTuple):
    """A picture in sRGB levels, 0 to 255, as coded (not linear light: that is how pictures are commonly resized)."""

    width: int
    height: int
    """Of the original, in pixels."""
    kind: str
    """`8`, `16` or `f`: a model that takes floats may read the same looks in another way."""
    rgb: Floats
    """[rows, columns, 1 or 3], over white where it is transparent."""
    alpha: Floats | None
    """[rows, columns], 0 to 255; None where all is opaque."""


def pixels(picture: Any) -> Pixels | None:
    """Evenly spaced samples of `picture`, at most `MOST_SAMPLES` a side; None for what cannot be told by looks."""
    mode = getattr(picture, "mode", None)
    if isinstance(mode, str) and hasattr(picture, "convert"):
        return _of_pillow(picture, mode)
    array = np.asarray(picture)
    if array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim not in (2, 3) or 0 in array.shape or (array.ndim == 3 and array.shape[2] > 4):
        return None
    height, width = array.shape[:2]
    return _finished(_sampled(array), width, height)


def _of_pillow(picture: Any, mode: str) -> Pixels | None:
    """`picture.resize` without a filter reads only the samples; `asarray` would copy 12 megapixels in 100 ms."""
    width, height = picture.size
    if mode in _REFUSED or not width or not height:
        return None
    if mode in _CONVERTED and "transparency" in getattr(picture, "info", {}):
        return None  # a palette's transparency: `keys` never hands one out
    if max(width, height) > MOST_SAMPLES and mode not in ("1", "P", "PA"):
        picture = picture.resize((min(width, MOST_SAMPLES), min(height, MOST_SAMPLES)), 0)  # 0: nearest
        return _finished(np.asarray(picture.convert("RGB") if mode in _CONVERTED else picture), width, height)
    array = np.asarray(picture.convert("RGBA" if "a" in mode.lower() else "RGB") if mode in _CONVERTED else picture)
    return _finished(_sampled(array), width, height)


def _sampled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    for axis in (0, 1):
        size = array.shape[axis]
        if size > MOST_SAMPLES:
            array = array.take(((np.arange(MOST_SAMPLES) + 0.5) * (size / MOST_SAMPLES)).astype(np.intp), axis)
    return array


def _finished(array: npt.NDArray[Any], width: int, height: int) -> Pixels | None:
    levels = _levels(array)
    if levels is None:
        return None
    kind = "8" if array.dtype == np.uint8 else "16" if array.dtype == np.uint16 else "f"
    if levels.ndim == 2:
        levels = levels[:, :, None]
    if levels.shape[2] in (1, 3):
        return Pixels(width, height, kind, levels, None)
    rgb, alpha = levels[:, :, :-1], levels[:, :, -1]
    if (alpha == 255).all():
        return Pixels(width, height, kind, rgb, None)
    share = alpha[:, :, None] / np.float32(255)
    return Pixels(width, height, kind, rgb * share + (255 - alpha[:, :, None]), alpha)


def _levels(array: npt.NDArray[Any]) -> Floats | None:
    """float32 in 0…255."""
    if array.dtype == np.uint8 or array.dtype == np.bool_:
        return array.astype(np.float32) * np.float32(255 if array.dtype == np.bool_ else 1)
    if array.dtype == np.uint16:
        return array.astype(np.float32) / np.float32(257)
    if array.dtype.kind != "f":
        return None
    least, most = float(array.min()), float(array.max())
    if not (least >= 0 and most <= 255):  # also NaN
        return None
    return array.astype(np.float32) * np.float32(255 if most <= 1 else 1)
