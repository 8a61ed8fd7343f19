"""Embeddings of the tables' texts and pictures, computed once in an environment and kept beside its packages."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

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
    """Rows for `names`, from a file where they were computed before. A folder that is read-only costs time."""
    file = HOME / f"semantic-{kind}-{weights[:12]}.npz"
    known = _read(file)
    keys = [blake3(name.encode()).digest(16) for name in names]
    missing = [(key, name) for key, name in dict(zip(keys, names, strict=True)).items() if key not in known]
    for done, (key, name) in enumerate(missing, 1):
        known[key] = encode(name)
        if done % 50 == 0 or done == len(missing):
            progress(f"embed {kind}s", done, len(missing))
        if done % 500 == 0 or done == len(missing):
            _write(file, known)
    return np.stack([known[key] for key in keys])


def _read(file: Path) -> dict[bytes, Floats]:
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as found:
            keys, rows = found["keys"], found["rows"]
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise AssetError(f"{file} cannot be read ({error}); remove it") from error
    return {key.tobytes(): row for key, row in zip(keys, rows, strict=True)}


def _write(file: Path, known: Mapping[bytes, Floats]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as stream:
            keys = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), 16)
            np.savez(stream, keys=keys, rows=np.stack(list(known.values())))
        part.replace(file)
    except OSError:
        return
