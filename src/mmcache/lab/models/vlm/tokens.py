"""DINOv2 tokens of whole data sets, computed once (minutes) and kept beside the data packages of this environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.lab.data.concepts import Concept
from mmcache.lab.data.pictures import shapes
from mmcache.lab.fetch import HOME
from mmcache.lab.models.image import ImageEncoder
from mmcache.lab.models.vlm.decoder import CHANNELS, PATCHES
from mmcache.lab.models.vlm.examples import TAUGHT_STYLES, UNTAUGHT_STYLE, split_concepts
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import AssetError

Tokens = npt.NDArray[np.float16]
BATCH = 8
TAUGHT_SHAPES = 1200
"""The first so many pictures of easy-VQA's training set are taught: more gained nothing that the test could tell."""


def kept(name: str, pictures: Mapping[str, Callable[[], Image.Image]], progress: Progress = silent) -> Tokens:
    """float16 [n, 257, 384] of `pictures` (by a label each), mapped from a file; computed where it is not there yet.

    The file is named by the labels and the encoder's signature. Raises `AssetError` where weights or data are missing,
    or the folder cannot be written.
    """
    encoder = ImageEncoder()
    which = hashlib.sha256("\n".join([encoder.signature.digest.hex(), *pictures]).encode()).hexdigest()
    path = HOME / "tokens" / f"{name}-{which[:16]}.npy"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            found = np.lib.format.open_memmap(part, "w+", np.float16, (len(pictures), PATCHES + 1, CHANNELS))
        except OSError as error:
            raise AssetError(f"cannot write {path.parent}: {error.strerror}") from error
        makers = list(pictures.values())
        for begin in range(0, len(pictures), BATCH):
            progress(f"tokens of {name}", begin, len(pictures))
            batch = [make() for make in makers[begin : begin + BATCH]]
            found[begin : begin + BATCH] = np.stack(encoder.encode_batch(batch))
        found.flush()
        part.replace(path)
    tokens: Tokens = np.load(path, mmap_mode="r")
    return tokens


def of_shapes_taught(progress: Progress = silent) -> Tokens:
    """easy-VQA's training pictures, as many as are taught."""
    return kept("easy-vqa-train", _files(shapes("train")[:TAUGHT_SHAPES]), progress)


def of_shapes_test(progress: Progress = silent) -> Tokens:
    """easy-VQA's 1 000 test pictures."""
    return kept("easy-vqa-test", _files(shapes("test")), progress)


def of_emoji(progress: Progress = silent) -> Mapping[str, tuple[Sequence[Concept], Tokens]]:
    """Concept by drawing: `taught` (each concept twice, in `TAUGHT_STYLES`), and three that are never seen in training:
    `new drawing` of a taught concept, `new concept` in a taught style, and `both` new.
    """
    taught, drawn, new = split_concepts()
    sets: dict[str, list[tuple[Concept, str]]] = {
        "taught": [(one, style) for one in taught for style in TAUGHT_STYLES],
        "new drawing": [(one, UNTAUGHT_STYLE) for one in drawn],
        "new concept": [(one, TAUGHT_STYLES[0]) for one in new],
        "both": [(one, UNTAUGHT_STYLE) for one in new],
    }
    return {
        name: (
            [one for one, _ in drawings],
            kept(
                "emoji-" + name.replace(" ", "-"),
                {f"{style} {one.name}": one.pictures[style] for one, style in drawings},
                progress,
            ),
        )
        for name, drawings in sets.items()
    }


def opened(path: Path) -> Image.Image:
    """The picture of a file, RGB, read."""
    with Image.open(path) as picture:
        return picture.convert("RGB")


def _files(paths: Sequence[Path]) -> dict[str, Callable[[], Image.Image]]:
    return {path.name: partial(opened, path) for path in paths}
