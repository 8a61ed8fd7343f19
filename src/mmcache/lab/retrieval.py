"""Two retrieval tasks over real pictures, to see what a lossy codec costs.

* Which picture of a gallery was an altered copy made from (mean average precision)? The gallery is easy-VQA's drawings
  (many differ in one shape's colour or place) and video frames (neighbours are nearly equal), so small changes of
  features do change ranks.
* Which patch of the original shows what a patch of the copy shows (percentage of correct keypoints, PCK)? Single
  tokens are compared, nothing is averaged, and each picture asks 256 times.

Features are DINOv2's; scores are cosines.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance

from mmcache.lab import data
from mmcache.lab.models import ImageEncoder
from mmcache.lab.table import Progress

Floats = npt.NDArray[np.float32]
Box = tuple[float, float, float, float]
"""Left, upper, right, lower, as shares of the picture's sides."""
BATCH = 8
SIDE = 16
"""Patches a side."""

DESCRIPTORS: dict[str, Callable[[Floats], Floats]] = {
    "class": lambda tokens: tokens[..., 0, :],
    "patches": lambda tokens: tokens[..., 1:, :].mean(axis=-2),
}
"""How a picture's tokens [257, 384] become one vector: the class token, or the mean of the patch tokens."""


@dataclass(frozen=True)
class Features:
    """Tokens of a gallery and of the queries made from it, float32 [257, 384] each; query i is of picture i mod n."""

    gallery: list[Floats]
    queries: list[Floats]
    boxes: list[Box]


def features(count: int, seeds: Sequence[int], progress: Progress) -> Features:
    """`count` pictures, half drawings and half frames, and one altered copy of each for every seed."""
    gallery = _gallery(count)
    altered = [alter(one, np.random.default_rng((seed, i))) for seed in seeds for i, one in enumerate(gallery)]
    model, tokens = ImageEncoder(), list[Floats]()
    everything = gallery + [copy for copy, _ in altered]
    for start in range(0, len(everything), BATCH):
        tokens += model.encode_batch(everything[start : start + BATCH])
        progress("DINOv2", min(start + BATCH, len(everything)), len(everything))
    return Features(tokens[:count], tokens[count:], [box for _, box in altered])


def _gallery(count: int) -> list[Image.Image]:
    drawings = [Image.open(path).convert("RGB") for path in data.shapes()[: count // 2]]
    frames = [frame for clip in ("bikes", "bunny", "carphone") for frame in data.frames(clip)]
    step = len(frames) / (count - len(drawings))
    return drawings + [frames[int(i * step)] for i in range(count - len(drawings))]


def alter(picture: Image.Image, random: np.random.Generator) -> tuple[Image.Image, Box]:
    """A copy as they go round, and what of the picture it shows.

    A crop of 70-95 % of each side, rescaled, brighter or darker, as a poor JPEG.
    """
    width, height = (max(8, round(side * random.uniform(0.7, 0.95))) for side in picture.size)
    left, upper = int(random.integers(picture.width - width + 1)), int(random.integers(picture.height - height + 1))
    copy = picture.crop((left, upper, left + width, upper + height)).resize((160, 160), Image.Resampling.BILINEAR)
    copy = ImageEnhance.Brightness(copy).enhance(random.uniform(0.7, 1.3))
    file = io.BytesIO()
    copy.save(file, "JPEG", quality=int(random.integers(25, 60)))
    right, lower = left + width, upper + height
    box = (left / picture.width, upper / picture.height, right / picture.width, lower / picture.height)
    return Image.open(file).convert("RGB"), box


def precision(gallery: Sequence[Any], queries: Sequence[Any], descriptor: str) -> npt.NDArray[np.float64]:
    """Average precision of each query, 1 / rank of the one right picture; its mean is the mAP."""
    known, asked = _unit(gallery, descriptor), _unit(queries, descriptor)
    scores = asked @ known.T
    right = np.arange(len(asked)) % len(known)
    own = scores[np.arange(len(asked)), right][:, None]
    others = scores.copy()
    others[np.arange(len(asked)), right] = -np.inf
    return np.asarray(1.0 / (1 + (others >= own).sum(axis=1)))


def _unit(tokens: Sequence[Any], descriptor: str) -> npt.NDArray[np.float64]:
    vectors = np.stack([DESCRIPTORS[descriptor](np.asarray(one, np.float32)) for one in tokens]).astype(np.float64)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def correspondence(gallery: Sequence[Any], queries: Sequence[Any], boxes: Sequence[Box]) -> npt.NDArray[np.float64]:
    """For each query, the share of its patches whose best match lies within one patch of where it should."""
    centres = (np.arange(SIDE) + 0.5) / SIDE
    shares = []
    for i, (asked, (left, upper, right, lower)) in enumerate(zip(queries, boxes, strict=True)):
        best = (_rows(asked) @ _rows(gallery[i % len(gallery)]).T).argmax(axis=1)
        x, y = np.meshgrid(left + centres * (right - left), upper + centres * (lower - upper))
        off_x, off_y = x.ravel() * SIDE - 0.5 - best % SIDE, y.ravel() * SIDE - 0.5 - best // SIDE
        shares.append(((np.abs(off_x) <= 1) & (np.abs(off_y) <= 1)).mean())
    return np.asarray(shares)


def _rows(tokens: Any) -> Floats:
    patches = np.asarray(tokens[1:], np.float32)
    return np.asarray(patches / np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-12))


def bootstrap(lost: npt.NDArray[np.float64], seed: int = 0, draws: int = 2000) -> npt.NDArray[np.float64]:
    """Means of resampled queries: `lost` is the difference of two systems on the same queries, so pairs stay paired."""
    picks = np.random.default_rng(seed).integers(0, len(lost), (draws, len(lost)))
    return np.asarray(lost[picks].mean(axis=1))
