"""A shard's slots go to another: by Valkey's own migration, key by key, and by redis-cli; and what a client notices."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from mmcache.lab.bench import main
from mmcache.lab.servers import Binary, Cluster, choose, cluster, slot_of
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError
from mmcache.scale import resharding
from mmcache.scale.access import Access
from mmcache.scale.observe import look
from mmcache.scale.observed import Member, Observed
from mmcache.scale.present import Present
from mmcache.scale.steps import MoveSlots
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Request

BLOCK = 1 << 20
SMALL = 200
"""Keys of 100 bytes, of the shard that moves, that a client reads all the time."""
RATIO_TARGET = 1.0
"""Ours must take at most so many times as long as redis-cli on the same server."""
ACCESS = Access(timeout_seconds=30.0)


class Given:
    """The platform: what runs is all there is."""

    def __init__(self, made: Cluster) -> None:
        self.made = made

    def members(self) -> list[Member]:
        return [Member(n % 3, n // 3, node.server.host, node.port, True) for n, node in enumerate(self.made.nodes)]

    def start_shard(self, shard: int, members: int) -> None:
        raise NotImplementedError

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        raise NotImplementedError

    def replace(self, member: Member) -> None:
        raise NotImplementedError


class Reader:
    """One client that reads small values, one after another, in a process of its own: whoever moves slots is another.

    Seconds of each read.
    """

    def __init__(self, url: str, keys: Sequence[bytes], seed: int) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._ours, theirs = spawned.Pipe()
        self._process = spawned.Process(target=_read, args=(theirs, url, list(keys), seed), daemon=True)
        self.took: list[float] = []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Meanwhile."""
        self._process.start()
        assert self._ours.recv() == "ready"
        try:
            yield
        finally:
            self._ours.send("stop")
            self.took, wrong = self._ours.recv()
            self._process.join()
        assert not wrong, f"{wrong} wrong values"

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return float(np.percentile(self.took, 99)) * 1000


def _read(pipe: Connection, url: str, keys: list[bytes], seed: int) -> None:
    """Until it is told to stop; then what it took, and how many were wrong."""
    draw, took, wrong = random.Random(seed), [], 0
    client = Client(SharedSettings(url, timeout_seconds=30.0), clock=SystemClock())
    client.ask([Request(key, ("GET", key)) for key in keys])  # it knows the way
    pipe.send("ready")
    while not pipe.poll():
        key = draw.choice(keys)
        began = time.perf_counter()
        (got,) = client.ask([Request(key, ("GET", key))])
        took.append(time.perf_counter() - began)
        wrong += got != key.ljust(100)
    client.close()
    pipe.send((took, wrong))


Way = Callable[[Observed, str, str], None]
"""Moves all slots of one shard but one (a node that gives its last becomes a replica) to another."""


def by_us(key_by_key: bool) -> Way:
    def move(seen: Observed, source: str, target: str) -> None:
        slots = sorted(seen.nodes[source].slots & _movable)
        with Present(seen, ACCESS) as present:
            resharding.move(MoveSlots(tuple(slots), source, target), present, lambda: False, key_by_key=key_by_key)

    return move


def by_redis_cli(seen: Observed, source: str, target: str) -> None:
    member = next(member for member in seen.members if member.name == source)
    count = len(seen.nodes[source].slots & _movable)
    subprocess.run(
        ["redis-cli", "--cluster", "reshard", f"{member.host}:{member.port}", "--cluster-from", seen.nodes[source].id,
         "--cluster-to", seen.nodes[target].id, "--cluster-slots", str(count), "--cluster-yes",
         "--cluster-pipeline", "100"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


_movable = frozenset(range(5460))
"""Of the first shard, all but its last slot."""


def blocks(made: Cluster, megabytes: int, seed: int) -> list[bytes]:
    """Put blocks and small values into slots that move; the names of the small ones."""
    draw, source = random.Random(seed), made.nodes[0].server
    mine = (key for number in range(10**7) if slot_of(key := b"key:%d" % number) in _movable)
    small = [next(mine) for _ in range(SMALL)]
    for key in small:
        source.ask("SET", key, key.ljust(100))
    for _ in range(megabytes):
        source.ask("SET", next(mine), draw.randbytes(BLOCK))
    return small


def measure(made: Cluster, way: Way, small: Sequence[bytes], seed: int) -> tuple[float, float]:
    """Seconds of a move, and P99 of reads meanwhile in ms; everything is back afterwards."""
    seen = look(Given(made), ACCESS, 0.0)
    reader = Reader(made.url, small, seed) if small else None
    began = time.perf_counter()
    if reader is None:
        way(seen, "0-0", "1-0")
    else:
        with reader.reading():
            way(seen, "0-0", "1-0")
            took = time.perf_counter() - began
    took = time.perf_counter() - began if reader is None else took
    made.await_healthy()
    by_us(False)(look(Given(made), ACCESS, 0.0), "1-0", "0-0")
    made.await_healthy()
    return took, 0.0 if reader is None else reader.p99


class Resharding(Table):
    """Seconds, and milliseconds at the 99th percentile."""

    name = "bench-resharding"
    title = "How long does a shard's worth of slots take to move, and what do clients notice?"
    remark = (
        "One shard of three gives all its slots but one to another; each primary has a replica, all on one machine of "
        "two cores, where clients, servers and whoever moves the slots share the cores. Valkey answers CLUSTER "
        "SETSLOT when the replicas have heard of it, so that key by key it waits for each slot; thirty-two "
        "connections wait side by side. redis-cli sends keys of a slot in batches of 100 however large they are, one "
        "slot after another; ours in loads of at most 256 KiB, or one block, since the source serves nobody meanwhile, "
        "rests after each for as long as it took, and waits until a replica of the receiver has it, which redis-cli "
        "does not. It opens and closes 64 slots at a time, so that a read may meet more of it at once. The reading "
        "client is a process of its own."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        megabytes = 60 if quick else 300
        ways: list[tuple[str, str, Binary, Way]] = [
            ("atomic", "Valkey's own migration", choose("valkey", 9), by_us(False)),
            ("valkey-keys", "Valkey, key by key", choose("valkey", 9), by_us(True)),
            ("redis-keys", "Redis 7.0, key by key", choose("redis", 7), by_us(True)),
        ]
        if quick:
            del ways[1]
        if shutil.which("redis-cli") is None:
            raise AssetError("no redis-cli to compare with: apt-get install redis-tools")
        ways.append(("redis-cli", "Redis 7.0 by redis-cli", choose("redis", 7), by_redis_cli))
        found: dict[str, list[float]] = {}
        for done, seed in enumerate(seeds):
            for name, _, binary, way in ways:
                progress(name, done, len(seeds))
                with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), 3, 1, binary=binary) as made:
                    found.setdefault(f"empty/{name}", []).append(measure(made, way, [], seed)[0])
                    small = blocks(made, megabytes, seed)
                    calm = Reader(made.url, small, seed)
                    with calm.reading():
                        time.sleep(1.0 if quick else 3.0)
                    took, p99 = measure(made, way, small, seed)
                    found.setdefault(f"blocks/{name}", []).append(took)
                    found.setdefault(f"p99/{name}", []).append(p99)
                    found.setdefault(f"calm/{name}", []).append(calm.p99)
        rows = [
            Row.of(f"{kind}/{name}", f"{metric}: {said}", unit, "lower", found[f"{kind}/{name}"])
            for kind, metric, unit in (
                ("empty", "5460 empty slots", "s"),
                ("blocks", f"{megabytes} MB in blocks of 1 MB", "s"),
                ("p99", "P99 of reads of 100 bytes meanwhile", "ms"),
                ("calm", "P99 of these reads before", "ms"),
            )
            for name, said, _, _ in ways
        ]
        for kind in ("empty", "blocks"):
            pairs = zip(found[f"{kind}/redis-keys"], found[f"{kind}/redis-cli"], strict=True)
            rows.append(
                Row.of(f"{kind}/ours÷redis-cli", f"{kind}, Redis 7.0: ours÷redis-cli, time", "x", "lower",
                       [ours / theirs for ours, theirs in pairs], target=RATIO_TARGET)
            )  # fmt: skip
        real = (
            "real servers on loopback, 3 primaries and 3 replicas; random bytes; one client of ours that reads all the "
            "time, each value checked",
            "redis-cli 7.0 `--cluster reshard --cluster-pipeline 100`",
        )
        return Result(self.name, quick, tuple(seeds), real, (), tuple(rows))


if __name__ == "__main__":
    sys.exit(main(Resharding()))
