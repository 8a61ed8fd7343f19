"""What blocks of four modalities weigh and cost: measured on real encoders, drawn for traces that carry neither.

No published trace says of what modality a block is. So each block draws a modality and a scale by a hash of its number
and a seed; popularity stays that of the trace, and is independent of what was drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mmcache.lab.table import Progress, percentile, silent
from mmcache.lab.traces.trace import Floats, Integers, Trace, uniform

SCALES = (1, 2, 4, 8)
SCALE_SHARES = (0.5, 0.25, 0.125, 0.125)
MODALITIES = ("text", "image", "audio", "video")
MODALITY_SHARES = (0.45, 0.35, 0.15, 0.05)

WORDS, CLIP_SECONDS, FRAMES = 8, 3.75, 4
"""At scale 1: a question of 8 words, one picture of one tile, a clip of 3.75 s, a video of 4 key frames."""


@dataclass(frozen=True)
class Curve:
    """Of one modality, by scale."""

    bytes: tuple[int, ...]
    """Of the stored features: float32 for text, FP16 for the others."""
    milliseconds: tuple[float, ...]
    """Of processor time to compute them, on one thread."""


PASSAGE = (
    "# The tour, in ten minutes One sentence to steer by: **deciders decide, doers do, watchers watch, "
    "doors open, and `cache.py` joins them.** ## 1. A call ``` features = encode(picture) ``` "
    "`encoder.py` identifies the picture (`keys/`), looks its key up in the tiers (`store.py`), hands out "
    "what is there, or lets one caller compute it (`answer.py`, `fill.py`, `flight.py`) and stores it "
    "everywhere (`store.py`)."
)
"""64 words of technical prose: a question takes the first 8."""

TILE_BYTES, TILE_MILLISECONDS = 257 * 384 * 2, 143.0

CURVES = {
    "text": Curve((1536,) * 4, (15.1, 33.7, 73.8, 182.9)),
    "image": Curve(tuple(TILE_BYTES * scale for scale in SCALES), tuple(TILE_MILLISECONDS * scale for scale in SCALES)),
    "audio": Curve((188 * 1024, 375 * 1024, 750 * 1024, 1500 * 1024), (90.2, 130.7, 268.6, 893.5)),
    "video": Curve(
        tuple(TILE_BYTES * FRAMES * scale for scale in SCALES),
        tuple(TILE_MILLISECONDS * FRAMES * scale for scale in SCALES),
    ),
}
"""Measured by `measure()` with this package's packaged encoders (multilingual-e5-small, DINOv2 ViT-S/14, Whisper base)
as medians of processor time on one thread of a two-core x86-64 virtual machine, Debian 12. What a policy sees is the
ratio between modalities, which another machine changes little; `mmcache bench encoder_costs` measures them again."""


def seconds_a_byte(modality: str) -> float:
    """Of the first scale; the mean of all modalities where this one is unknown."""
    known = [CURVES[modality]] if modality in CURVES else list(CURVES.values())
    return float(np.mean([curve.milliseconds[0] / 1e3 / curve.bytes[0] for curve in known]))


def costed(trace: Trace, seed: int) -> Trace:
    """`trace` with modalities and costs drawn for `seed`.

    A trace whose blocks all weigh the same (it carries no sizes) gets the measured bytes as well; one with sizes keeps
    them, and a block costs the measured seconds a byte of what it drew.
    """
    numbers = np.arange(len(trace.sizes))
    kinds = _draw(numbers, 1001 + 2 * seed, MODALITY_SHARES)
    scales = _draw(numbers, 2001 + 2 * seed, SCALE_SHARES)
    weights = np.array([CURVES[name].bytes for name in MODALITIES], np.int64)[kinds, scales]
    costs: Floats = np.array([CURVES[name].milliseconds for name in MODALITIES])[kinds, scales] / 1e3
    sized = bool(len(trace.sizes)) and int(trace.sizes.min()) != int(trace.sizes.max())
    if sized:
        costs, weights = costs * trace.sizes / weights, trace.sizes
    return replace(trace, sizes=weights, costs=costs, kinds=kinds, modalities=MODALITIES)


def _draw(numbers: Integers, stream: int, shares: tuple[float, ...]) -> Integers:
    return np.searchsorted(np.cumsum(shares)[:-1], uniform(numbers, stream), side="right").astype(np.int64)


def measure(repeats: int = 9, progress: Progress = silent) -> dict[str, list[list[float]]]:
    """Milliseconds of processor time by modality and scale, `repeats` samples each, on one thread.

    Runs the packaged encoders. Raises `AssetError` where they are not installed.
    """
    from PIL import Image

    from mmcache.lab.models import ImageEncoder, SpeechEncoder, TextEncoder

    random = np.random.default_rng(0)
    text, image, speech = TextEncoder(), ImageEncoder(threads=1), SpeechEncoder(threads=1)
    words = PASSAGE.split()
    picture = Image.fromarray(random.integers(0, 255, (480, 640, 3), np.uint8))
    sound = random.standard_normal(int(CLIP_SECONDS * 16_000 * SCALES[-1]), np.float32) / np.float32(10)
    calls: dict[str, Callable[[int], object]] = {
        "text": lambda scale: text.encode(" ".join(words[: WORDS * scale])),
        "image": lambda scale: [image.encode(picture) for _ in range(scale)],
        "audio": lambda scale: speech.encode(sound[: int(CLIP_SECONDS * 16_000 * scale)]),
    }
    found: dict[str, list[list[float]]] = {}
    for modality, call in calls.items():
        for scale in SCALES:
            call(scale)  # loads the model, and warms up
            samples = []
            for _ in range(repeats):
                start = time.process_time()
                call(scale)
                samples.append((time.process_time() - start) * 1e3)
            found.setdefault(modality, []).append(samples)
            progress(f"{modality} ×{scale}", len(found[modality]), len(SCALES))
    tile = percentile(found["image"][0], 0.5)
    found["video"] = [[tile * FRAMES * scale] for scale in SCALES]
    return found
