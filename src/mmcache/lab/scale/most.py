"""How much the generator can ask for, on the machine that it shares with the servers: more is asked than can be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.load.crowd import Crowd
from mmcache.lab.load.job import Job
from mmcache.lab.servers import cluster
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError
from mmcache.scale.local.versions import find

_TOO_MANY = 300_000.0
"""Requests a second."""
_KEYS = 10_000
_LONGEST_FILL = 60.0
WAYS = {"reads-256B": (256, 1.0), "mixed-1KiB": (1024, 0.9)}
"""Bytes of a block and share of reads, by name."""


@dataclass(frozen=True)
class Most:
    """What it came to."""

    qps: float
    """Answered."""
    busy: float
    """Of a core, by the generator's processes together."""
    wrong: int


def most(folder: Path, version: str, way: str, seconds: float, seed: int, progress: Progress) -> Most:
    """Of three servers without replicas. Raises `AssetError`, `ScaleError`."""
    size, reads = WAYS[way]
    processes = min(4, os.cpu_count() or 1)
    with cluster(folder, 3, 0, binary=find(version)) as made:
        job = Job(
            made.url, _TOO_MANY, seconds, _KEYS, {size: 1.0}, reads=reads, processes=processes, lanes=1, seed=seed,
            check=False, timeout_seconds=5.0,
        )  # fmt: skip
        with Crowd(job) as crowd:
            waited = 0.0
            while crowd.filling(0.5):
                waited += 0.5
                progress(f"most {way}", crowd.filled, _KEYS)
                if waited > _LONGEST_FILL:
                    raise AssetError(f"the blocks are not written after {_LONGEST_FILL:g} s")
            crowd.go()
            while crowd.running(seconds):
                crowd.stop()
            found = crowd.outcome()
    middle = crowd.between(0.25 * seconds, 0.75 * seconds)
    return Most(middle.requests / (0.5 * seconds), sum(found.processor_shares), found.counts.wrong)
