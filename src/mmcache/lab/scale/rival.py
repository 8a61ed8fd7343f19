"""The usual way: `redis-cli --cluster rebalance`, under the same load; and clients that spread keys by themselves."""

from __future__ import annotations

import shutil
import subprocess
import time
from bisect import bisect
from pathlib import Path

from blake3 import blake3

from mmcache.lab.load.shape import popularity
from mmcache.lab.scale.reshard import MORE
from mmcache.lab.scale.stand import FIRST
from mmcache.lab.scale.trial import Extent, Trial, job_at, loaded
from mmcache.lab.scale.watch import Watch
from mmcache.lab.servers import Cluster, cluster
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError, ScaleError
from mmcache.scale.local.versions import find

_LONGEST = 240.0
_POINTS = 160
"""Of each server on a ring (ketama's)."""


def tool() -> str:
    """The program. Raises `AssetError`."""
    found = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if found is None:
        raise AssetError("no redis-cli or valkey-cli here: apt-get install redis-tools")
    return found


def by_tool(name: str, folder: Path, version: str, extent: Extent, seed: int, progress: Progress) -> Trial:
    """One trial. Two shards are added to three, empty; the tool gives them slots, and takes them back.

    No replicas: the tool does not wait for them either. Raises `AssetError`, `ScaleError`.
    """
    trial, program, binary = Trial(name), tool(), find(version)
    trial.server = str(binary)
    options = ("--maxmemory", str(extent.memory_bytes), "--maxmemory-policy", "allkeys-lru")
    with cluster(folder, FIRST, 0, *options, binary=binary) as made:
        first = {node.port for node in made.nodes}
        watch = Watch(lambda: [node.port for node in made.nodes], None, lambda port: port in first)
        with loaded(trial, job_at(made.url, None, extent, seed), watch, progress) as run:
            run.calm(extent.calm_seconds)
            at_first = _owners(made)
            run.mark("out")
            new = [made.add_node() for _ in range(MORE - FIRST)]
            _tell(program, made, "--cluster-use-empty-masters")
            made.await_healthy()
            run.mark("out done")
            between = _owners(made)
            run.moved("out", at_first, between)
            run.calm(extent.calm_seconds)
            run.mark("in")
            _tell(program, made, "--cluster-weight", *(f"{node.name}=0" for node in new))
            made.await_healthy()
            run.mark("in done")
            run.moved("in", between, _owners(made))
            run.calm(extent.calm_seconds)
            run.finish()
    return trial


def _tell(program: str, made: Cluster, *words: str) -> None:
    end = time.monotonic() + _LONGEST
    while True:
        done = subprocess.run(
            [program, "--cluster", "rebalance", f"127.0.0.1:{made.nodes[0].port}", *words], check=False,
            capture_output=True, text=True, timeout=_LONGEST, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        if done.returncode == 0:
            return
        if time.monotonic() > end:
            raise ScaleError(f"{program} --cluster rebalance: {(done.stdout + done.stderr).strip()[-300:]}")
        time.sleep(0.5)  # nodes that do not agree yet


def _owners(made: Cluster) -> dict[int, int]:
    return {slot: number for number, node in enumerate(made.nodes) for slot in node.sees()[node.name].slots}


def remapped(keys: int, exponent: float) -> dict[str, float]:
    """The share of requests that still find their block when clients spread keys over five servers instead of three."""
    weights = popularity(keys, exponent)
    hashes = [int.from_bytes(blake3(b"%d" % number).digest(length=8)) for number in range(keys)]
    rings = [_ring(count) for count in (FIRST, MORE)]
    stays = {
        "modulo": [value % FIRST == value % MORE for value in hashes],
        "ring": [_on(rings[0], value) == _on(rings[1], value) for value in hashes],
    }
    return {way: float(sum(weight for weight, same in zip(weights, kept, strict=True) if same))
            for way, kept in stays.items()}  # fmt: skip


def _ring(count: int) -> list[tuple[int, int]]:
    points = [(int.from_bytes(blake3(b"%d-%d" % (server, point)).digest(length=8)), server)
              for server in range(count) for point in range(_POINTS)]  # fmt: skip
    return sorted(points)


def _on(ring: list[tuple[int, int]], value: int) -> int:
    return ring[bisect(ring, (value, -1)) % len(ring)][1]
