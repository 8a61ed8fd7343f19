"""What the demo asks for: a list of requests over files on disk, the same for every pass."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Modality = Literal["image", "text", "audio"]
Kind = Literal["new", "repeat", "re-encoded", "resized", "crop", "respelled"]
Box = tuple[int, int, int, int]
"""left, upper, right, lower in pixels of the original."""

TILE = 224
"""Pixels a side of the tiles that crops are made of: one input of the image model each."""


class Ask(msgspec.Struct, frozen=True):
    """One request."""

    modality: Modality
    kind: Kind
    source: str
    """A file's name within the media folder, or the text itself."""
    box: Box | None = None
    """A crop: answered by the tiles that it touches."""


Page = tuple[str, ...]
"""The pictures that it shows: files' names within the media folder."""


class Walks(msgspec.Struct, frozen=True):
    """Visitors who walk pages of pictures, one page after the other."""

    earlier: tuple[tuple[Page, ...], ...]
    """One after the other."""
    newcomer: tuple[Page, ...]
    """Who comes after them, by the first tour's way."""
    held: int
    """Pictures' features that memory has room for; there is no disk."""
    reading_seconds: float
    """That the newcomer spends on each page."""


class Manifest(msgspec.Struct, frozen=True):
    """The stream and how it was drawn."""

    seed: int
    quick: bool
    media: str
    """The folder with the files."""
    asks: tuple[Ask, ...]
    lossy: tuple[str, ...]
    """Picture files of the int4 pass."""
    walks: Walks | None = None
    """Of the scene with a prefetcher; None: it is not played."""

    def write(self, path: Path) -> None:
        """Store it as JSON."""
        path.write_bytes(msgspec.json.encode(self))

    @staticmethod
    def read(path: Path) -> Manifest:
        """The inverse of `write`. Raises `msgspec.MsgspecError`."""
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
