"""Inputs that the tests of this folder share."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from mmcache.keys.content import Content, identify
from mmcache.keys.options import ContentOptions

SALT = bytes(range(32))


def of(source: Any, modality: str = "image", **more: Any) -> Content:
    return identify(source, modality, salt=more.pop("salt", SALT), **more)


def noise(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A picture of random pixels."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    values = np.random.default_rng(seed).integers(0, 256, width * height * channels, dtype=np.uint8)
    return Image.frombytes(mode, (width, height), values.tobytes())


def encoded(picture: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def same(one: Image.Image, two: Image.Image) -> bool:
    return (one.mode, one.size, one.tobytes()) == (two.mode, two.size, two.tobytes())


__all__ = ["SALT", "ContentOptions", "encoded", "noise", "of", "same"]
