"""The demo from end to end: a real cluster on loopback, two hosts of two processes each, and a node that is killed."""

from __future__ import annotations

import json as codec
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from mmcache.lab import data
from mmcache.lab.demo.run import bar
from mmcache.lab.demo_cluster.outcome import Outcome, screen
from mmcache.lab.demo_cluster.worker import Log, Plan
from mmcache.lab.servers import Cluster, cluster
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import MMCacheError

HOSTS = ("one", "other")
PROCESSES = 2
"""Of each host."""
PICTURES = 60
PAUSE_SECONDS = 0.02
REQUESTS = 200
"""At least, in each phase, of all processes."""
PATIENCE_SECONDS = 120.0
PHASES = ("all nodes up", "a primary killed", "it is back")


def run(seconds: float = 6.0, json: bool = False, seed: int = 0) -> int:
    """Run it and print what it shows. seconds: of each of the three phases.

    Returns 0; 1 when a caller got an error, or features that are not the computed ones. Raises `AssetError`,
    `MMCacheError`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mmcache-cluster-") as folder,
        nullcontext(silent) if json else bar() as progress,
    ):
        outcome = _play(Path(folder), seconds, seed, progress)
    if json:
        print(codec.dumps(outcome.as_json(), indent=2))
    else:
        from rich.console import Console

        Console().print(screen(outcome))
    return 0 if outcome.ok else 1


def _play(folder: Path, seconds: float, seed: int, progress: Progress) -> Outcome:
    pictures = [str(path) for path in data.shapes()[:PICTURES]]
    progress("start a cluster", 0, 1)
    with cluster(folder / "cluster") as nodes:
        progress("start a cluster", 1, 1)
        secret, number = secrets.token_bytes(32), 0
        workers = list[_Worker]()
        try:
            for host in HOSTS:
                for _ in range(PROCESSES):
                    plan = Plan(host, nodes.url, str(folder / host), pictures, seed + number, PAUSE_SECONDS, secret)
                    workers.append(_Worker(folder / f"{number}", plan))
                    number += 1
            for worker in workers:
                worker.await_ready()
            marks = list(_phases(nodes, workers, seconds, progress))
            logs = [worker.end() for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
    return Outcome.of(pictures, PHASES, marks, logs)


def _phases(nodes: Cluster, workers: Sequence[_Worker], seconds: float, progress: Progress) -> Iterator[float]:
    """When each ends, in monotonic seconds."""
    victim, done = nodes.primaries[0], 0
    for number, phase in enumerate(PHASES):
        if number == 1:
            nodes.kill(victim)
        elif number == 2:
            nodes.restart(victim)
        began, before = time.monotonic(), done
        while (lasted := time.monotonic() - began) < seconds or done - before < REQUESTS:
            done = sum(worker.done for worker in workers)
            progress(phase, min(done - before, REQUESTS - 1), REQUESTS)
            if lasted > PATIENCE_SECONDS:
                break
            time.sleep(0.05)
        progress(phase, REQUESTS, REQUESTS)
        yield time.monotonic()


class _Worker:
    """One process."""

    def __init__(self, at: Path, plan: Plan) -> None:
        at.mkdir()
        (at / "plan.json").write_bytes(msgspec.json.encode(plan))
        self._out = at / "log"
        self._complaints = (at / "stderr").open("w+b")
        command = [sys.executable, "-m", "mmcache.lab.demo_cluster.worker", str(at / "plan.json"), str(self._out)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
        )  # fmt: skip

        self.done = 0
        """Requests."""
        self._reader: threading.Thread | None = None

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._failed()
        self._reader = threading.Thread(target=self._count, daemon=True)
        self._reader.start()

    def _count(self) -> None:
        for line in self._process.stdout or ():
            self.done = int(line)

    def end(self) -> Log:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait():
            self._failed()
        return msgspec.msgpack.decode(self._out.read_bytes(), type=Log)

    def _failed(self) -> None:
        self._process.wait()
        self._complaints.seek(0)
        raise MMCacheError(f"a process of the demo ended: {self._complaints.read()[-2000:].decode(errors='replace')}")

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._complaints.close()
