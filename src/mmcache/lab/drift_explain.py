"""Does `explain` name what moved, and does the signature keep stale answers away? Asked of the real cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mmcache import Cache, Signature
from mmcache.keys.drift.culprit import compare
from mmcache.keys.drift.trace import Trace
from mmcache.lab.drift_bench import DARKER, World
from mmcache.lab.drift_model import BATCH

BASE = Signature(model_version="lab-1", tokenizer="v3", preprocess="rgb-44x80", decoder="pillow-1", dtype="<f4")
SIGNED = {
    "tokenizer": replace(BASE, tokenizer="tekken-2407"),
    "preprocess": replace(BASE, preprocess="rgb-64x64"),
    "model": replace(BASE, model_version="lab-2"),
    "decoder": replace(BASE, decoder="pillow-2"),
    "dtype": replace(BASE, dtype="<f2"),
}
"""Causes that are fields of the signature."""
CAUSES = (*SIGNED, "statistics", "region", "part:ocr", "")
"""All that are tried; empty: nothing moved, the block was dropped."""


def named_right(texts: Sequence[str]) -> float:
    """% of misses whose cause, injected here, `compare` names, and nothing else. Every cause with every text."""
    right = [_named(text, cause) for text in texts for cause in CAUSES]
    return 100 * float(np.mean(right))


def _named(text: str, cause: str) -> bool:
    with Cache(memory="1MiB") as cache:
        key = cache.key(text, modality="text", signature=BASE)
        cache.put(key, text)

        def traced(signature: Signature, when: float, **more: object) -> Trace:
            found = cache.explain(text, modality="text", signature=signature)
            return found.trace(when=when, **{"statistics": "a", "parts": {"ocr": "a"}} | more)  # type: ignore[arg-type]

        seen = traced(BASE, 1.0)
        if not cause or cause in ("statistics", "region", "part:ocr"):
            cache.invalidate(key)  # these three are told by the caller; the key that they are part of has no block
        later = traced(SIGNED.get(cause, BASE), 2.0)
        moved = {"statistics": {"statistics": "b"}, "region": {"region": "r"}, "part:ocr": {"part:ocr": "b"}}
        if cause in moved:
            later = Trace(later.format, 2.0, later.source, later.outcome, "moved", later.components | moved[cause])
        told = compare([seen, later])
        return told is not None and told.culprits == ((cause,) if cause else ())


def stale(world: World) -> tuple[float, float]:
    """% of (unsigned, signed) keys under which a stored answer is found that the network, moved, gives otherwise.

    Stored answers are the calibrated network's. `unsigned` keys by pixels alone; ours is `Cache.key` with
    `Signature.of` the network, whose buffers count.
    """
    moved = world.tower.copy()
    rng = np.random.default_rng(world.seed)
    for _ in range(30):
        moved.follow(world.pool[rng.choice(len(world.pool), BATCH, replace=False)] * np.float32(DARKER))
    old, new = world.tower.answers(world.images), moved.answers(world.images)
    other = np.array([a != b for a, b in zip(old, new, strict=True)])
    with Cache(memory="16MiB") as cache:
        signed = Signature.of(world.tower.network)
        for image, answer in zip(world.images, old, strict=True):
            cache.put(cache.key(image, modality="tensor", signature=signed), answer)
        resigned = Signature.of(moved.network)
        found = [cache.get(cache.key(image, modality="tensor", signature=resigned)) for image in world.images]
    served = np.array([one is not None and one != now for one, now in zip(found, new, strict=True)])
    return 100 * float(other.mean()), 100 * float(served.mean())
