"""Plain models for `mmcache warm`: a few lines of numpy each, exact and fast, to try the pipeline without weights.

`mmcache warm --video talk.mp4 --ocr --asr --encoders mmcache.lab.warm_models:make`
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.cache import Cache
from mmcache.encoder import Encoder

Mono = npt.NDArray[np.float32]

RATE = 16_000
INK = 96
"""Grey level below which a pixel is ink."""
STEP = RATE // 100


def colours(picture: Image.Image) -> npt.NDArray[np.float32]:
    """float32 [48]: a 4 × 4 thumbnail."""
    return np.asarray(picture.convert("RGB").resize((4, 4)), np.float32).ravel()


def find(picture: Image.Image) -> npt.NDArray[np.int32]:
    """Runs of rows with ink: int32 [n, 4]."""
    ink = np.asarray(picture.convert("L")) < INK
    found = []
    for upper, lower in _runs(ink.any(axis=1), 3):
        columns = np.flatnonzero(ink[upper:lower].any(axis=0))
        found.append((columns[0], upper, columns[-1] + 1 - columns[0], lower - upper))
    return np.array(found, np.int32).reshape(-1, 4)


def read(line: Image.Image) -> dict[str, Any]:
    """A name for what the line looks like: its width and a hash of its pixels."""
    return {"text": f"{line.width}px {sha256(line.tobytes()).hexdigest()[:8]}", "score": 0.9}


def listen(samples: Mono) -> npt.NDArray[np.int32]:
    """Where it is louder than 1 %, in steps of 10 ms: int32 [n, 2]."""
    steps = samples[: samples.size // STEP * STEP].reshape(-1, STEP)
    loud = np.abs(steps).max(axis=1) > 0.01 if steps.size else np.zeros(0, bool)
    return np.array([(10 * begin, 10 * end) for begin, end in _runs(loud, 20)], np.int32).reshape(-1, 2)


def hear(samples: Mono) -> dict[str, Any]:
    """The pitch in Hz, from zero crossings."""
    crossings = int(np.count_nonzero(np.diff(np.signbit(samples))))
    return {"text": f"{round(crossings * RATE / 2 / max(1, samples.size), -1):.0f} Hz"}


def letters(text: str) -> npt.NDArray[np.float32]:
    """float32 [26]: how often each letter stands in it."""
    return np.array([text.lower().count(chr(97 + n)) for n in range(26)], np.float32)


def make(cache: Cache) -> dict[str, Encoder]:
    """All six."""
    version = "plain-1"
    return {
        "frame": cache.wrap(colours, modality="image", signature=version, guard=False),
        "find": cache.wrap(find, modality="image", signature=version, guard=False),
        "read": cache.wrap(read, modality="image", signature=version, guard=False),
        "listen": cache.wrap(listen, modality="audio", signature=version, guard=False),
        "hear": cache.wrap(hear, modality="audio", signature=version, guard=False),
        "text": cache.wrap(letters, modality="text", signature=version, guard=False),
    }


def _runs(yes: Any, gap: int) -> list[tuple[int, int]]:
    """bool [n] → (begin, end) of runs of True; gaps shorter than `gap` are none."""
    places = np.flatnonzero(yes)
    if not places.size:
        return []
    breaks = np.flatnonzero(np.diff(places) > gap)
    begins, ends = places[np.r_[0, breaks + 1]], places[np.r_[breaks, places.size - 1]] + 1
    return [(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]
