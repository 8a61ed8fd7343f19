"""Features of the paired data: what three encoders that know nothing of each other say of the same concepts.

Pictures: DINOv2 ViT-S/14, class token beside the mean patch token. Texts: multilingual-e5-small. Sounds: Whisper base's
encoder, pooled over time. They are computed once (minutes) and kept beside the data packages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mmcache.lab.assets import runtime
from mmcache.lab.data.concepts import Concept
from mmcache.lab.data.emoji import emoji
from mmcache.lab.data.openclipart import openclipart
from mmcache.lab.data.stamps import stamps
from mmcache.lab.fetch import HOME, PACKAGES
from mmcache.lab.models import ImageEncoder, SpeechEncoder, TextEncoder
from mmcache.lab.models.mel import MAX_SECONDS, RATE
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

SETS: Mapping[str, tuple[Callable[[], tuple[Concept, ...]], tuple[str, ...]]] = {
    "emoji": (emoji, ("noto", "fluent", "twemoji", "emojibase")),
    "openclipart": (openclipart, ("openclipart",)),
    "stamps": (stamps, ("stamps",)),
}
"""Data set → its concepts, and the packages that they come from."""
BATCH = 8
_RECIPE = 1
"""Of the features; counts up when they change."""


@dataclass(frozen=True)
class Features:
    """One modality of one data set."""

    rows: Floats
    """float32 [n, width]."""
    concept: Numbers
    """int64 [n]: number of the concept that row i shows."""
    source: tuple[str, ...]
    """The language of row i, or the style of its picture."""


@dataclass(frozen=True)
class Pairs:
    """One data set."""

    name: str
    modalities: Mapping[str, Features]
    """`image`, `text`, and `audio` where there is any."""
    category: tuple[str, ...]
    """Of concept i."""
    root: tuple[str, ...]
    """What concept i is split by; see `Concept.root`."""


def pairs(name: str, progress: Progress, most: int | None = None) -> Pairs:
    """The features of data set `name`, computed where they are not kept yet. Raises `AssetError`.

    `most`: only so many concepts, a fixed random choice of them.
    """
    concepts: tuple[Concept, ...] = SETS[name][0]()
    if most is not None:
        chosen = np.random.default_rng(0).permutation(len(concepts))[:most]
        concepts = tuple(concepts[i] for i in sorted(chosen.tolist()))
    found = {}
    for modality, (items, encode, encoder) in _MODALITIES.items():
        by_source: dict[str, list[tuple[int, Any]]] = {}
        for i, concept in enumerate(concepts):
            for source, item in items(concept, most is not None):
                by_source.setdefault(source, []).append((i, item))
        parts = []
        for source, listed in by_source.items():
            what, digest = f"{name}-{modality}-{source}", _digest(name, encoder(), most)
            rows = _kept(what, digest, [item for _, item in listed], encode, progress)
            parts.append(Features(rows, np.array([i for i, _ in listed]), (source,) * len(listed)))
        if parts:
            found[modality] = Features(
                np.concatenate([part.rows for part in parts]),
                np.concatenate([part.concept for part in parts]),
                tuple(source for part in parts for source in part.source),
            )
    return Pairs(name, found, tuple(c.category for c in concepts), tuple(c.root for c in concepts))


def _digest(name: str, signature: str, most: int | None) -> str:
    packages = [PACKAGES[package].sha256 for package in SETS[name][1]]
    return hashlib.sha256(repr((_RECIPE, packages, signature, most)).encode()).hexdigest()[:16]


Item = tuple[str, Any]
"""Language or style, and what the encoder is given."""


def _pictures(concept: Concept, few: bool) -> Iterable[Item]:
    return list(concept.pictures.items())[: 1 if few else None]


def _texts(concept: Concept, few: bool) -> Iterable[Item]:
    return [item for item in concept.texts.items() if not few or item[0] in ("en", "fr")]


def _sounds(concept: Concept, few: bool) -> Iterable[Item]:
    return [item for item in concept.sounds.items() if not few or item[0] == "fr"]


@cache
def _image() -> ImageEncoder:
    return ImageEncoder()


@cache
def _text() -> TextEncoder:
    return TextEncoder()


@cache
def _speech() -> SpeechEncoder:
    return SpeechEncoder()


def _encode_pictures(pictures: list[Callable[[], Any]]) -> Floats:
    tokens = np.stack(_image().encode_batch([picture() for picture in pictures]))
    return np.concatenate([tokens[:, 0], tokens[:, 1:].mean(axis=1)], axis=1)


def _encode_texts(texts: list[str]) -> Floats:
    return np.stack(_text().encode_batch([text.replace("\0", " ") for text in texts]))


def _encode_sounds(paths: list[Path]) -> Floats:
    return np.stack([_speech().encode(samples(path)).mean(axis=0) for path in paths])


def samples(path: Path) -> Floats:
    """A sound file as mono float32 PCM at 16 kHz, at most 30 s. Raises `AssetError`."""
    import soundfile
    from scipy.signal import resample_poly

    try:
        heard, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise AssetError(f"{path} cannot be read as sound: {error}") from error
    mono = heard.mean(axis=1)
    if rate != RATE:
        mono = resample_poly(mono, RATE, rate)
    return np.ascontiguousarray(mono[: MAX_SECONDS * RATE], np.float32)


_MODALITIES: Mapping[
    str, tuple[Callable[[Concept, bool], Iterable[Item]], Callable[[Any], Floats], Callable[[], str]]
] = {
    "image": (_pictures, _encode_pictures, lambda: f"{_image().signature.digest.hex()}-{runtime('resvg_py')}"),
    "text": (_texts, _encode_texts, lambda: _text().signature.digest.hex()),
    "audio": (_sounds, _encode_sounds, lambda: _speech().signature.digest.hex()),
}


def _kept(what: str, digest: str, items: list[Any], encode: Callable[[Any], Floats], progress: Progress) -> Floats:
    """The features out of their file, computed first where there is none, or none that can be read."""
    path = HOME / "features" / f"{what}-{digest}.safetensors"
    try:
        rows = load_file(path)["rows"] if path.is_file() else None
    except (SafetensorError, KeyError):
        rows = None
    if rows is not None and len(rows) == len(items):
        return np.asarray(rows)
    done: list[Floats] = []
    for start in range(0, len(items), BATCH):
        done.append(encode(items[start : start + BATCH]))
        progress(f"features {what}", min(start + BATCH, len(items)), len(items))
    rows = np.ascontiguousarray(np.concatenate(done), np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    save_file({"rows": rows}, part)
    part.replace(path)
    return rows
