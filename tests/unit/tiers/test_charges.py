"""What the memory tier charges is about what it takes, whatever the shape of the value."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mmcache.codecs.chain import choose
from mmcache.codecs.pipeline import freeze, thaw
from mmcache.model.frame import Frame
from mmcache.model.signature import Signature
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing.frames import make_key
from mmcache.tiers.memory import MemoryTier

ENTRIES = 6
LEAST = 0.75


def tensors(count: int) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return [torch.zeros(4) for _ in range(count)]


SHAPES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "array": lambda: np.zeros((64, 32), np.float32),
    "small array": lambda: np.zeros(4, np.float32),
    "bytes": lambda: bytes(100_000),
    "ascii": lambda: "x" * 100_000,
    "one emoji": lambda: "x" * 50_000 + "\N{SLICE OF PIZZA}",
    "dict of arrays": lambda: {f"name {i}": np.zeros(4, np.float32) for i in range(300)},
    "list of texts": lambda: ["x" * 1000 for _ in range(100)],
    "tuple of bytes": lambda: tuple(bytes([i]) * 1000 for i in range(100)),
    "strings": lambda: [f"string {i}" for i in range(1000)],
    "flags": lambda: [True, None] * 1000,
    "pairs": lambda: [[i, i + 1] for i in range(1000)],
    "tuples": lambda: [(i, i + 1.5) for i in range(1000)],
    "records": lambda: [{"start": i, "score": i / 7, "text": f"t{i}"} for i in range(300)],
    "mixed": lambda: [[f"s{i}", np.zeros(2)] for i in range(100)],
    "scalars": lambda: [np.float32(i) for i in range(100)],
    "tensor": lambda: tensors(1),
    "tensors": partial(tensors, 100),
}


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("stored", [False, True], ids=["fresh", "read back"])
@pytest.mark.parametrize("shape", SHAPES)
def test_charge_is_about_what_an_entry_takes(shape: str, codec: str, stored: bool) -> None:
    values = [SHAPES[shape]() for _ in range(ENTRIES + 1)]
    share = charged_of_taken(values, codec, stored)
    if share <= LEAST:  # what else the process allocated meanwhile (a table that all share grew) counts as taken
        share = charged_of_taken(values, codec, stored)
    assert LEAST < share < 1.5


def charged_of_taken(values: list[object], codec: str, stored: bool) -> float:
    """What is charged for the entries of `values`, as a share of what they take."""
    tier = MemoryTier(MemorySettings(1 << 28, largest_share=1.0), LRU(), thaw)

    def put(i: int) -> None:
        frame = freeze(
            values[i], key=make_key(i), signature=Signature(model_version="m-1"), modality="text", tenant="t",
            namespace="n", cost=1.0 + i, created=2.0 + i, chain=choose("text", codec),
        )  # fmt: skip
        tier.put([Frame.parse(frame.to_bytes()) if stored else frame], [None])

    put(ENTRIES)  # what is made once for all
    gc.collect()
    charged = tier.stats().bytes
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(ENTRIES):
        put(i)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    tier.check_integrity()
    # The rest of a process (allocators' slack, the heat policy) takes 100 to 400 bytes an entry more.
    return (tier.stats().bytes - charged) / (taken + 200 * ENTRIES)
