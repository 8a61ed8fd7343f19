"""What one server gives out through the product's own tier, on loopback; what blocks of known encoders weigh."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from mmcache.codecs.pipeline import choose, freeze
from mmcache.lab.measure import Timing, interleave
from mmcache.lab.servers import server
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError
from mmcache.model.frame import Frame
from mmcache.model.key import PART_BYTES, Key
from mmcache.model.signature import Signature
from mmcache.tiers.valkey.tier import ValkeyTier

TOWERS: Mapping[str, tuple[int, int]] = {
    "DINOv2 ViT-S/14, 224²": (257, 384),
    "CLIP ViT-L/14, 336²": (577, 1024),
    "LLaVA-1.5 7B, projected": (576, 4096),
    "Qwen2-VL 7B, 1036²": (1369, 3584),
}
"""Tokens and width of what is kept of one picture."""
CHAINS = ("fp16", "int4:group=64")
_BATCH = 8


def block(shape: tuple[int, int], chain: str, name: str = "", number: int = 0) -> Frame:
    """A frame of so large features, as the cache would store it. Its size does not depend on the values."""
    values = np.random.default_rng(number).standard_normal(shape, np.float32).astype(np.float16)
    digest = hashlib.blake2b(f"{name}/{number}".encode(), digest_size=PART_BYTES).digest()
    return freeze(
        values, key=Key(bytes(PART_BYTES), digest), signature=Signature(), modality="image", tenant="lab",
        namespace="lab", cost=0.0, created=0.0, chain=choose("image", chain),
    )  # fmt: skip


def reads(sizes: Mapping[str, tuple[tuple[int, int], str]], rounds: int, progress: Progress) -> dict[str, Timing]:
    """Seconds that a block takes to be read, in batches of eight, from one server on loopback; by name of its size.

    sizes: shape and chain. Raises `AssetError` where there is no server.
    """
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as one:
        tier = ValkeyTier.open(one.url, timeout_seconds=5.0)
        try:
            calls = {}
            for name, (shape, chain) in sizes.items():
                frames = [block(shape, chain, name, number) for number in range(_BATCH)]
                if any(tier.put(frames, [None] * _BATCH)):
                    raise AssetError(f"a server on loopback did not take {_BATCH} blocks of {frames[0].size} bytes")
                calls[name] = partial(tier.get, [frame.key for frame in frames])
            return interleave(calls, rounds=rounds, per=_BATCH, progress=progress)
        finally:
            tier.close()
