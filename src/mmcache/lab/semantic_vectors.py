"""Embeddings of the tables' texts and pictures, computed once in an environment and kept beside its packages."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3
from PIL import Image

from mmcache.lab.fetch import HOME
from mmcache.lab.models import ImageEncoder, TextEncoder
from mmcache.lab.models.image import WEIGHTS as IMAGE_WEIGHTS
from mmcache.lab.models.text import WEIGHTS as TEXT_WEIGHTS
from mmcache.lab.semantic_stream import VARIANTS, picture
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]


def text_vectors(texts: Sequence[str], progress: Progress = silent) -> Floats:
    """multilingual-e5-small: float32 [texts, 384], L2-normalised. Raises `AssetError`."""
    encoder = TextEncoder()
    return _kept("text", TEXT_WEIGHTS.sha256, texts, encoder.encode, progress)


def picture_vectors(names: Sequence[str], progress: Progress = silent) -> Mapping[str, Floats]:
    """DINOv2's summary token of pictures by `Request.name`: float32 [384], L2-normalised. Raises `AssetError`."""
    encoder = ImageEncoder()

    def encode(name: str) -> Floats:
        number, _, variant = name.partition(".")
        found = next(known for known in VARIANTS if known == variant)
        summary = np.asarray(encoder.encode(_opened(picture(int(number), found))))[0]
        unit: Floats = (summary / np.linalg.norm(summary)).astype(np.float32)
        return unit

    ordered = sorted(set(names))
    return dict(zip(ordered, _kept("picture", IMAGE_WEIGHTS.sha256, ordered, encode, progress), strict=True))


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def _kept(kind: str, weights: str, names: Sequence[str], encode: Callable[[str], Floats], progress: Progress) -> Floats:
    """Rows for `names`, from a file where it was computed before. A folder that cannot be written only costs time."""
    digest = blake3("\0".join((weights, *names)).encode()).hexdigest(length=12)
    file = HOME / f"semantic-{kind}-{digest}.npy"
    if file.is_file():
        try:
            found = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise AssetError(f"{file} cannot be read ({error}); remove it") from error
        if found.shape == (len(names), 384) and found.dtype == np.float32:
            return np.asarray(found, np.float32)
    rows = np.empty((len(names), 384), np.float32)
    for place, name in enumerate(names):
        rows[place] = encode(name)
        if place % 50 == 49 or place + 1 == len(names):
            progress(f"embed {kind}s", place + 1, len(names))
    _keep(file, rows)
    return rows


def _keep(file: Path, rows: Floats) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{id(rows)}.part")
        with part.open("wb") as stream:
            np.save(stream, rows, allow_pickle=False)
        part.replace(file)
    except OSError:
        return
