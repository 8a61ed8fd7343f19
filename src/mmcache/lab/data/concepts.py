"""What pictures, texts and sounds have in common: a concept, in as many modalities as a data package shows it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from mmcache.model.errors import AssetError

SIDE = 224
"""Pixels a side of what is drawn from SVG: the image encoder's own input size."""
RENDERER = "resvg_py"


@dataclass(frozen=True)
class Concept:
    """One thing, its category, and what shows or names it."""

    name: str
    """Unique within its data set."""
    category: str
    pictures: Mapping[str, Callable[[], Image.Image]]
    """Style → draws or reads one RGB picture, on white. Raises `AssetError`."""
    texts: Mapping[str, str]
    """Language code → caption; `en` is always there."""
    sounds: Mapping[str, Path] = field(default_factory=dict)
    """Language code → file of the spoken caption."""

    @property
    def root(self) -> str:
        """What is split by: the words of the English name that say what it is.

        `man farmer` and `woman farmer` share one, as do an emoji and a stamp of one name, so neither can stand in the
        training set where the other is tested.
        """
        words = re.findall(r"[^\W_]+", self.texts["en"].split(":")[0].lower())
        kept = [word for word in words if word not in _EMPTY]
        return " ".join(kept or words)


_EMPTY = frozenset(("a", "an", "the", "of", "some", "man", "men", "woman", "women", "person", "people", "boy", "girl"))


def on_white(picture: Image.Image) -> Image.Image:
    """RGB, transparent parts white."""
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return picture.convert("RGB")


def opened(path: Path) -> Callable[[], Image.Image]:
    """Reads a PNG, or draws an SVG, when called."""

    def read() -> Image.Image:
        if path.suffix == ".svg":
            return drawn(path.read_text(encoding="utf-8", errors="replace"))
        with Image.open(path) as picture:
            return on_white(picture)

    return read


def drawn(svg: str) -> Image.Image:
    """`svg` as an RGB picture 224 pixels wide, on white. Raises `AssetError`."""
    try:
        import resvg_py
    except ImportError as error:
        raise AssetError("drawing SVG needs resvg: python -m pip install 'mmcache[demo]'") from error
    try:
        page = bytes(
            resvg_py.svg_to_bytes(svg_string=svg, background="white", skip_system_fonts=True, width=SIDE, dpi=96)
        )
    except ValueError as error:
        raise AssetError(f"an SVG of the data cannot be drawn: {error}") from error
    return on_white(Image.open(io.BytesIO(page)))
