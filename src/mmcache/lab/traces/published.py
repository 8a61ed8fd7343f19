"""Published request traces, read from the files as their authors gave them out.

They are not part of this package. `folder()` is where they are looked for.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mmcache.lab.traces.trace import Trace
from mmcache.model.errors import AssetError

UNIT_BYTES = 4096
"""A block of a trace that gives no sizes."""
W106_REQUESTS = 1_500_000
"""Only the first of its 5.3 million requests are read: more add time to a run, no other behaviour."""


@dataclass(frozen=True)
class Published:
    """One trace: its file below the folder, and how to read it."""

    file: str
    source: str
    read: Callable[[Path, str], Trace]


def _integers(path: Path, columns: tuple[int, ...], delimiter: str | None, skip: int) -> npt.NDArray[np.int64]:
    """int64 [rows, columns] of a text file."""
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open(encoding="utf-8") as stream:
        rows = csv.reader(stream, delimiter=delimiter or " ")
        for _ in range(skip):
            next(rows)
        return np.array([[int(row[column]) for column in columns] for row in rows], np.int64)


def _mooncake(path: Path, name: str) -> Trace:
    """JSON lines of LLM requests; each 512-token block of a prompt is a request."""
    keys: list[int] = []
    times: list[float] = []
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            keys += row["hash_ids"]
            times += [row["timestamp"] / 1e3] * len(row["hash_ids"])
    return Trace.of(name, keys, times, UNIT_BYTES, notes=("no sizes: 4096 B a block",))


def _cloudphysics(path: Path, name: str) -> Trace:
    rows = _integers(path, (1, 3, 4), ",", 1)
    return Trace.of(name, rows[:, 2], rows[:, 0] - rows[0, 0], rows[:, 1], notes=("a block has its largest size",))


def _adaptsize(path: Path, name: str) -> Trace:
    rows = _integers(path, (1, 2), None, 0)
    return Trace.of(name, rows[:, 0], None, rows[:, 1], notes=("no times: 10 ms apart", "a block has its largest size"))


def _numbers(path: Path, name: str) -> Trace:
    """Big-endian 32-bit keys and nothing else."""
    with lzma.open(path) as stream:
        keys = np.frombuffer(stream.read(4 * W106_REQUESTS), ">i4").astype(np.int64)
    return Trace.of(name, keys, None, UNIT_BYTES, notes=("no times: 10 ms apart", "no sizes: 4096 B a block"))


PUBLISHED = {
    "mooncake": Published(
        "mooncake/conversation_trace.jsonl",
        "Mooncake conversations, KV blocks of an LLM service (FAST 2025)",
        _mooncake,
    ),
    "web12": Published("caffeine_sim/cache2k_web12.trace.xz", "cache2k web12, product pages of a shop", _numbers),
    "adaptsize": Published(
        "caffeine_sim/adapt_size_request.trace.xz", "AdaptSize, a content delivery network", _adaptsize
    ),
    "cloudphysics": Published("libcachesim/cloudPhysicsIO.csv", "CloudPhysics, block I/O", _cloudphysics),
    "w106": Published(
        "caffeine_sim/cloud_physics_w106.trace.xz", "CloudPhysics w106, block I/O, first 1.5 million requests", _numbers
    ),
}


def read(name: str, folder: Path) -> Trace:
    """The published trace `name` with cost 1 a block. Raises `AssetError` where its file is missing or damaged."""
    published = PUBLISHED[name]
    path = folder / published.file
    if not path.is_file():
        raise AssetError(f"no trace {published.file} in {folder}; set MMCACHE_TRACES to the folder of the traces")
    try:
        return published.read(path, name)
    except (ValueError, LookupError, EOFError, lzma.LZMAError) as error:
        raise AssetError(f"{path} is damaged or another file than the published one: {error}") from error
