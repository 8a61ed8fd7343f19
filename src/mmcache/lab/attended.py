"""How large the blocks of patches and scenes are, and how sure attention is of them: from real frames and tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.keys.region import tiles
from mmcache.lab import data
from mmcache.lab.models import ImageEncoder
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import AssetError
from mmcache.policies.entropy import attention_entropy

Floats = npt.NDArray[np.float64]

TILE = 224
FRAME = (1280, 720)
SIDE, CHANNELS, HALF = 16, 384, 2
"""Patch tokens a side of a tile, channels of a token, bytes of a channel in FP16."""
PATCH_TOKENS = 64
"""Tokens of a patch-level block: one page of the arena."""


@dataclass(frozen=True)
class Material:
    """What the blocks are made of."""

    patch_bytes: int
    tile_bytes: int
    tiles: int
    """Of a scene."""
    patch_entropies: Floats
    """float64 [a]: nats."""
    tile_entropies: Floats
    """float64 [b]: nats."""
    real: bool
    """Whether the entropies come from real features."""

    @property
    def patches(self) -> float:
        """How many patch-level blocks weigh and cost as much as one tile."""
        return self.tile_bytes / self.patch_bytes


def material(frames: int, progress: Progress = silent) -> Material:
    """Of `frames` frames of a 720p clip. Entropies are drawn where the encoder or the clip is not installed."""
    count = len(tiles(*FRAME, TILE, 0))
    sizes = (PATCH_TOKENS * CHANNELS * HALF, (SIDE * SIDE + 1) * CHANNELS * HALF, count)
    try:
        patches, whole = _entropies(frames, progress)
    except AssetError:
        random = np.random.default_rng(0)
        patches, whole = (np.log(tokens) * random.beta(4.0, 2.0, 500) for tokens in (PATCH_TOKENS, SIDE * SIDE))
        return Material(*sizes, patches, whole, real=False)
    return Material(*sizes, patches, whole, real=True)


def _entropies(frames: int, progress: Progress) -> tuple[Floats, Floats]:
    """Of the attention that a tile's class token pays to its patch tokens: all of them, and within each quarter.

    Softmax of their scaled dot product, as in one head of attention without projections. The packaged model gives its
    own attention out as little as it has a text to attend from, so this stands in for a cross-attention.
    """
    encoder, patches, whole = ImageEncoder(), list[float](), list[float]()
    for done, frame in enumerate(data.frames("bunny", 0, 132, max(1, 132 // frames))):
        if done == frames:
            break
        progress("entropies of real features", done, frames)
        for tokens in encoder.encode_batch([region.render(frame) for region in tiles(*frame.size, TILE, 0)]):
            scores = (tokens[1:] @ tokens[0] / np.sqrt(CHANNELS)).reshape(SIDE, SIDE)
            whole.append(attention_entropy(scores.ravel()))
            half = SIDE // 2
            patches += [
                attention_entropy(scores[y : y + half, x : x + half].ravel()) for y in (0, half) for x in (0, half)
            ]
    return np.array(patches), np.array(whole)
