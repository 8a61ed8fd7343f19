"""Runs passes, each in a process of its own, and reports how far they are."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.demo.foresight import steps
from mmcache.lab.demo.manifest import Manifest
from mmcache.lab.demo.records import Lossy, Pass, Visited, load_lossy, load_pass, load_visited
from mmcache.lab.table import Progress, silent
from mmcache.model.errors import MMCacheError

WORKER = "mmcache.lab.demo.worker"


@dataclass(frozen=True)
class Passes:
    """All passes over one stream."""

    plain: Pass
    first: Pass
    """With an empty cache."""
    restarted: Pass
    """A new process over the same folder."""
    lossy: Lossy
    process_seconds: tuple[float, float, float]
    """Of the first three, from start to exit, the interpreter and all imports included."""
    visited: Visited | None = None
    """The scene with a prefetcher."""


def run_all(folder: Path, manifest: Manifest, progress: Progress = silent) -> Passes:
    """Run all passes with their files in `folder`. Raises `MMCacheError` with the worker's last words."""
    page = folder / "manifest.json"
    manifest.write(page)
    count, out = len(manifest.asks), folder / "pass.json"
    plans = (("no cache", "plain", ""), ("cache, empty", "cached", "cache"), ("cache, restarted", "cached", "cache"))
    passes, seconds = list[Pass](), list[float]()
    for title, mode, root in plans:
        start = time.perf_counter()
        _work([mode, str(page), str(out), str(folder / root)], title, count, progress)
        seconds.append(time.perf_counter() - start)
        passes.append(load_pass(out))
    _work(["lossy", str(page), str(out), str(folder / "int4")], "int4", len(manifest.lossy), progress)
    lossy, visited = load_lossy(out), None
    if manifest.walks is not None:
        _work(["visits", str(page), str(out)], "visits, foreseen", steps(manifest.walks), progress)
        visited = load_visited(out)
    plain, first, restarted = passes
    return Passes(plain, first, restarted, lossy, (seconds[0], seconds[1], seconds[2]), visited)


def _work(arguments: list[str], title: str, count: int, progress: Progress) -> None:
    progress(title, 0, count)
    command = [sys.executable, "-m", WORKER, *arguments]
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as worker,
    ):
        try:
            for line in worker.stdout or ():
                progress(title, int(line), count)
        except BaseException:
            worker.kill()
            raise
        if worker.wait():
            complaints.seek(0)
            last = complaints.read().strip()[-2000:]
            raise MMCacheError(f"the pass {title!r} ended with code {worker.returncode}: {last}")
