"""Runs of table `ebpf`: one process reads a cache at set times, others watch it, and its own log says who was right."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmcache.lab.traced_watch import SECOND_NS, THRESHOLD
from mmcache.tracer import Mark, Trace

KEYS = 2_000
_FLASHES = 10
_EARLY_NS = 1_000_000  # what passes between a read's entry in the log and the read


@dataclass
class Seen:
    """What one watcher did in one run."""

    cpu: float
    """CPU share of the watched process, of one core."""
    watcher_cpu: float = 0.0
    """CPU share of the watching process."""
    delays: list[float] = field(default_factory=list)
    """Seconds from the crossing to the mark, of hot keys that were found."""
    hot: int = 0
    """Keys that were hot, by the log."""
    false: int = 0
    """Keys marked that were not, or before they were."""
    seconds: float = 0.0

    @property
    def found(self) -> float:
        """Share of the hot keys that were marked."""
        return len(self.delays) / self.hot if self.hot else 1.0


class Child:
    """The process that reads (`traced_load`)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = int(self._answer()["pid"])

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __call__(self, *words: object) -> Any:
        """One command; returns when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()


@contextmanager
def child(keys: int = KEYS) -> Iterator[Child]:
    """A process with so many keys in memory."""
    command = [sys.executable, "-m", "mmcache.lab.traced_load", "--stored", str(keys)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def plan(rate: int, seconds: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """When (ns) and which key: Zipf (s = 1) at `rate` a second in all, as a Poisson process, and ten cold keys, each of
    which is read at 150 to 400 a second for one second."""
    rng = np.random.default_rng([seed, rate])
    count = int(rate * seconds)
    due = [np.sort(rng.uniform(0, seconds, count))]
    weights = 1 / np.arange(1, KEYS - _FLASHES + 1)
    key = [rng.choice(len(weights), count, p=weights / weights.sum())]
    for n in range(_FLASHES):
        reads = int(rng.uniform(150, 400))
        start = rng.uniform(0, max(0.1, seconds - 1.1))
        due.append(start + np.sort(rng.uniform(0, 1, reads)))
        key.append(np.full(reads, KEYS - 1 - n))
    moments, keys = np.concatenate(due), np.concatenate(key)
    order = np.argsort(moments, kind="stable")
    return (moments[order] * 1e9).astype(np.int64), keys[order]


def crossings(at: np.ndarray, key: np.ndarray) -> dict[int, int]:
    """Key → when its 101st read within a second was, the first time. at: [n] ns, ascending."""
    first: dict[int, int] = {}
    for number in np.unique(key):
        times = at[key == number]
        close = times[THRESHOLD:] - times[:-THRESHOLD] < SECOND_NS
        if close.any():
            first[int(number)] = int(times[THRESHOLD + int(np.argmax(close))])
    return first


def judge(seen: Seen, marks: list[tuple[int, int]], hot: dict[int, int]) -> None:
    """marks: (number of a key, when it was marked in ns). Fills in what of `Seen` follows."""
    earliest: defaultdict[int, list[int]] = defaultdict(list)
    for number, when in marks:
        earliest[number].append(when)
    seen.hot = len(hot)
    for number, times in earliest.items():
        if number not in hot or min(times) < hot[number] - _EARLY_NS:
            seen.false += 1
        else:
            seen.delays.append(max(0, min(times) - hot[number]) / 1e9)


class _Kernel:
    """The eBPF tracer as `mmcache trace` runs it: waits for marks, and reads the table of keys each second."""

    def __init__(self, pid: int) -> None:
        self.marks: list[tuple[str, int]] = []
        self._trace = Trace(pid, self._heard, sockets=False)
        self._stop = False
        self.cpu = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _heard(self, mark: Mark) -> None:
        self.marks.append((str(mark.key), time.monotonic_ns()))

    def _run(self) -> None:
        before, shown = time.thread_time(), time.monotonic()
        while not self._stop:
            self._trace.poll(0.25)
            if time.monotonic() - shown >= 1:
                shown = time.monotonic()
                self._trace.hottest(20)
        self.cpu = time.thread_time() - before

    def end(self) -> None:
        self._stop = True
        self._thread.join()
        self._trace.poll(0)
        self._trace.close()


WATCHERS = ("none", "ebpf", "ring", "recency", "frames-100", "frames-1000", "py-spy-100")


def watch(one: Child, name: str, rate: int, seconds: float, seed: int) -> Seen:
    """One run. Raises `TracerError` where the kernel lets nothing be traced."""
    due, key = plan(rate, seconds, seed)
    names = {text: number for number, text in enumerate(one("names", KEYS))}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/plan.npz"
        np.savez(path, due=due, key=key)
        kernel = _Kernel(one.pid) if name == "ebpf" else None
        spy = _spy(one.pid, seconds, folder) if name.startswith("py-spy") else None
        inside = name in ("ring", "recency") or name.startswith("frames")
        if inside:
            one("watch", name)
        before = _children_cpu()
        took = one("load", path)
        marks: list[tuple[str, int]] = one("unwatch") if inside else []
        seen = Seen(took["cpu"] / took["seconds"], seconds=took["seconds"])
        if kernel is not None:
            kernel.end()
            marks, seen.watcher_cpu = kernel.marks, kernel.cpu / took["seconds"]
        if spy is not None:
            with suppress(subprocess.TimeoutExpired):
                spy.wait(30)
            spy.kill()
            spy.wait()
            seen.watcher_cpu = (_children_cpu() - before) / took["seconds"]
        at = np.load(path + ".npy")
    judge(seen, [(names[text], when) for text, when in marks], crossings(at, key))
    return seen


def _spy(pid: int, seconds: float, folder: str) -> subprocess.Popen[bytes]:
    command = ["py-spy", "record", "--pid", str(pid), "--rate", "100", "--format", "raw", "--output", f"{folder}/spy"]
    program = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    return subprocess.Popen(
        [program, *command[1:], "--duration", str(max(1, round(seconds)))],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def spy_installed() -> bool:
    """Whether py-spy is to be had."""
    return shutil.which("py-spy") is not None or Path(sys.executable).with_name("py-spy").exists()


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
