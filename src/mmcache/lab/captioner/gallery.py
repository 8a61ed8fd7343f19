"""What a picture looks like, in words: the named drawings whose DINOv2 features are nearest to its own.

The gallery holds one vector for each of the emoji concepts: the mean of the pooled features of its drawings by Noto and
Fluent. Pictures that are asked about are Twemoji's, which it has not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mmcache.lab.table import Progress, silent
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]

FILE = Path(__file__).with_name("gallery.safetensors")
STYLES = ("noto", "fluent")
"""Whose drawings are in the gallery."""
UNSEEN = "twemoji"
"""Whose are asked about."""
WIDTH = 768
SHRINKAGE = 1e-3
"""Of the largest variance, added to every one before whitening. Of 0.1, 0.01 and 0.001 the best on 160 of Twemoji's
drawings (0.50 of first names right; 0.20 without whitening, where colour and outline decide)."""


def pooled(tokens: npt.NDArray[np.generic]) -> Floats:
    """Tokens [257, 384] → [768]: the class token and the mean patch, each of length 1."""
    whole = np.asarray(tokens, np.float32)
    parts = (whole[0], whole[1:].mean(axis=0))
    return np.concatenate([part / max(float(np.linalg.norm(part)), 1e-12) for part in parts])


@dataclass(frozen=True)
class Gallery:
    """Vectors [n, 768] and their captions, e.g. `nerd face: brainy, clever, expert`."""

    path: Path = FILE

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file (hex). Raises `AssetError`."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as error:
            raise AssetError(f"cannot read {self.path}: {error.strerror}; build it anew: {BUILD}") from error

    @cached_property
    def _loaded(self) -> tuple[Floats, tuple[str, ...]]:
        """Vectors as they are in the file, and their captions."""
        try:
            tensors = load_file(self.path)
            vectors = np.asarray(tensors["vectors"], np.float32)
            captions = tuple(bytes(tensors["captions"]).decode().split("\n"))
        except (OSError, KeyError, SafetensorError) as error:
            raise AssetError(f"{self.path} is no gallery: {error}; build it anew: {BUILD}") from error
        return vectors, captions

    @cached_property
    def _whitened(self) -> tuple[Floats, Floats, Floats]:
        """Mean, whitening matrix (of the gallery's own covariance), and whitened vectors of length 1."""
        vectors = self._loaded[0]
        mean = vectors.mean(axis=0)
        variances, axes = np.linalg.eigh(np.cov((vectors - mean).T.astype(np.float64)))
        matrix = (axes / np.sqrt(variances.clip(0) + SHRINKAGE * variances.max())).astype(np.float32)
        white = (vectors - mean) @ matrix
        return mean, matrix, white / np.linalg.norm(white, axis=1, keepdims=True)

    def load(self) -> None:
        """Read and whiten now. Raises `AssetError`."""
        _ = self._whitened

    def nearest(self, tokens: npt.NDArray[np.generic], count: int) -> list[str]:
        """The captions of the `count` nearest (cosine after whitening), nearest first."""
        mean, matrix, white = self._whitened
        scores = white @ ((pooled(tokens) - mean) @ matrix)
        return [self._loaded[1][int(place)] for place in np.argsort(-scores, kind="stable")[:count]]


BUILD = "python -m mmcache.lab.captioner.gallery"


def build(path: Path = FILE, progress: Progress = silent) -> None:
    """Compute the gallery: some minutes of one core. Raises `AssetError` where weights or drawings are missing."""
    from mmcache.lab.data.emoji import emoji
    from mmcache.lab.models import ImageEncoder

    encoder, concepts = ImageEncoder(threads=1), emoji()
    vectors: list[Floats] = []
    for done, concept in enumerate(concepts):
        progress("drawings", done, len(concepts))
        seen = encoder.encode_batch([concept.pictures[style]() for style in STYLES])
        mean = np.mean([pooled(tokens) for tokens in seen], axis=0)
        vectors.append(mean / np.linalg.norm(mean) * np.float32(2**0.5))
    save(path, vectors, [concept.texts["en"] for concept in concepts])


def save(path: Path, vectors: Sequence[Floats], captions: Sequence[str]) -> None:
    """Write a gallery."""
    text = np.frombuffer("\n".join(captions).encode(), np.uint8)
    save_file({"vectors": np.stack(vectors).astype(np.float16), "captions": text}, path)


if __name__ == "__main__":
    build()
