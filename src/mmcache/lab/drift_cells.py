"""What the width of a cell buys and costs: copies that keep their key, twins and strangers that share one."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from mmcache.keys.drift import QuantisedKey
from mmcache.lab.drift_bench import World
from mmcache.lab.drift_cards import TWIN_EVERY, pixels
from mmcache.lab.drift_keys import NAIVE_DECIMALS, NAIVE_DIMENSIONS

CELLS: dict[str, float] = {"0.05": 0.05, "0.25": 0.25, "1": 1.0, "4": 4.0, "sign": 0.0}
"""Widths in standard deviations; `sign`: one bit a dimension."""


@dataclass(frozen=True)
class Cells:
    """Of one width, %."""

    copies: float
    """JPEG copies (quality 90) of the catalogue that keep their key."""
    twins: float
    """Twins (one drawing, another line) that share a key."""
    strangers: float
    """Cards that share a key with another that is not their twin."""


def measure(world: World, name: str) -> Cells:
    """For one of `CELLS`."""
    width = CELLS[name]
    key = (
        QuantisedKey(world.key.statistics, step=width) if width else QuantisedKey(world.key.statistics, "sign")
    )  # fmt: skip
    own = key.digests(world.tower.features(world.images)[0])
    jpegs = pixels([_jpeg(card.picture()) for card in world.catalogue])
    copies = key.digests(world.tower.features(jpegs)[0])
    twins = [(place - 1, place) for place in range(TWIN_EVERY - 1, len(own), TWIN_EVERY)]
    drawn = [card.drawing for card in world.catalogue]
    seen: dict[bytes, set[int]] = {}
    for digest, drawing in zip(own, drawn, strict=True):
        seen.setdefault(digest, set()).add(drawing)
    return Cells(
        100 * float(np.mean([a == b for a, b in zip(own, copies, strict=True)])),
        100 * float(np.mean([own[a] == own[b] for a, b in twins])),
        100 * float(np.mean([len(seen[digest]) > 1 for digest in own])),
    )


def _jpeg(picture: Image.Image) -> Image.Image:
    page = io.BytesIO()
    picture.save(page, "JPEG", quality=90)
    return Image.open(page).convert("RGB")


def batches(world: World) -> tuple[float, float]:
    """% of (naive, frozen) keys that are the same when pictures come one by one and not in batches of 64."""
    before, after = world.tower.features(world.images)
    single = [world.tower.features(image[None]) for image in world.images]
    alone_before, alone_after = (np.concatenate([pair[k] for pair in single]) for k in (0, 1))
    naive = [
        np.round(part[:, :NAIVE_DIMENSIONS].astype(np.float64), NAIVE_DECIMALS) for part in (after, alone_after)
    ]  # fmt: skip
    frozen = [world.key.digests(part) for part in (before, alone_before)]
    kept = [a == b for a, b in zip(*frozen, strict=True)]
    return 100 * float((naive[0] == naive[1]).all(1).mean()), 100 * float(np.mean(kept))
