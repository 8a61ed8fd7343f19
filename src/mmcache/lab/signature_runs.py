"""Runs of the table `signature`: real processes on one folder, and somebody who decides meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.lab.data.texts import paragraphs
from mmcache.lab.models.text import TextEncoder
from mmcache.lab.signature_models import VERSIONS, Floats, read, shaped
from mmcache.lab.signature_worker import Plan, load
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError
from mmcache.rollout.board import Board
from mmcache.rollout.report import Counts
from mmcache.rollout.state import State

WINDOW = 100
"""Requests over which a hit rate is taken."""
TOLERANCE = 0.10
"""A dip lasts as long as the hit rate of a window lies so far below the rate before."""
Served = npt.NDArray[Any]


@dataclass(frozen=True)
class Corpus:
    """Texts, and what each version's application must read for them: the second witness, made without any cache."""

    texts: tuple[str, ...]
    mean: Floats
    scores: dict[str, dict[str, float]]

    @staticmethod
    def make(count: int, progress: Progress) -> Corpus:
        """Of the first words of paragraphs of Python's manual. Raises `AssetError`."""
        texts = tuple(dict.fromkeys(" ".join(page.split()[:7]) for page in paragraphs()))[:count]
        model = TextEncoder()
        dense = []
        for done, text in enumerate(texts):
            dense.append(model.encode(text))
            progress("what is right", done + 1, len(texts))
        mean = np.asarray(np.mean(dense, axis=0), np.float32)
        pairs = list(zip(texts, dense, strict=True))
        scores = {
            version: {text: read(version, shaped(version, one, text, mean)) for text, one in pairs}
            for version in VERSIONS
        }
        return Corpus(texts, mean, scores)


@dataclass(frozen=True)
class Scale:
    """How large a run is."""

    popular: int
    processes: int
    threads: int
    rate: float
    seconds: float


@dataclass(frozen=True)
class Switch:
    """Something was decided: when the command had returned, and when it was given, monotonic ns."""

    name: str
    at: int
    asked: int = 0


@dataclass(frozen=True)
class Run:
    """What came of it. `served`: one array a process."""

    served: tuple[Served, ...]
    switches: tuple[Switch, ...]
    began: int
    state: State | None = None
    counts: Counts | None = None

    @property
    def all(self) -> Served:
        """Of all processes, by time."""
        rows = np.concatenate(self.served)
        return rows[np.argsort(rows["at"], kind="stable")]


Decide = Callable[[Board], object]


def run(
    folder: Path,
    corpus: Corpus,
    scale: Scale,
    seed: int,
    way: str,
    versions: tuple[str, str] = ("v1", "v2"),
    *,
    decisions: Sequence[tuple[float, str, Decide]] = (),
    board: Board | None = None,
    shared: str = "",
    failing: bool = False,
) -> Run:
    """One run. `decisions`: (share of the run's time, name, what is decided). Raises `AssetError` where one fails."""
    folder.mkdir(parents=True)
    texts = [str(text) for text in np.random.default_rng(seed).permutation(list(corpus.texts))]
    deploy = [scale.seconds * (0.4 + 0.2 * place / max(1, scale.processes - 1)) for place in range(scale.processes)]
    plan = Plan(
        way, str(folder / "cache"), versions, texts[: scale.popular], texts[scale.popular :], corpus.scores,
        corpus.mean.tobytes(), scale.processes, scale.threads, scale.rate, scale.seconds, deploy, seed, shared, failing,
    )  # fmt: skip
    (folder / "plan").write_bytes(msgspec.msgpack.encode(plan))
    outs = [folder / f"served-{number}.npy" for number in range(scale.processes)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "mmcache.lab.signature_worker", str(folder / "plan"), str(number), str(out)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number, out in enumerate(outs)
    ]  # fmt: skip
    try:
        for worker in workers:
            if _pipe(worker.stdout).readline() != "ready\n":
                raise AssetError("a process of the table signature did not start: see its message above")
        began = time.monotonic_ns()
        for worker in workers:
            _pipe(worker.stdin).write("go\n")
            _pipe(worker.stdin).flush()
        switches = []
        for share, name, decide in decisions:
            time.sleep(max(0.0, began / 1e9 + share * scale.seconds - time.monotonic()))
            assert board is not None
            asked = time.monotonic_ns()
            decide(board)
            switches.append(Switch(name, time.monotonic_ns(), asked))
        if any(worker.wait() for worker in workers):
            raise AssetError("a process of the table signature failed: see its message above")
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    if way != "rollout":
        switches = [Switch("deployed", began + int(at * 1e9)) for at in deploy]
    served = tuple(map(load, outs))
    if board is None:
        return Run(served, tuple(switches), began)
    return Run(served, tuple(switches), began, board.state("text"), board.report("text").counts)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


# What the rows say ----------------------------------------------------------------------------------------------------


def share(rows: Served, field: str) -> float:
    """Per cent."""
    return 100 * float(rows[field].mean()) if len(rows) else 0.0


def steady(rows: Served, before: int, since: int) -> float:
    """Hit rate, 0…1, in the time before a switch."""
    part = rows[(rows["at"] >= since) & (rows["at"] < before)]
    return float(part["hit"].mean())


def dip(rows: Served, since: int, until: int, usual: float) -> tuple[float, int]:
    """After a switch: by how many points the worst window of requests lies below the usual hit rate; and the number of
    requests up to the end of the last window that lies more than `TOLERANCE` below it."""
    hits = rows["hit"][(rows["at"] >= since) & (rows["at"] < until)].astype(np.float64)
    width = min(WINDOW, len(hits))
    if not width:
        return 0.0, 0
    rates = np.convolve(hits, np.ones(width) / width, "valid")
    low = np.flatnonzero(rates < usual - TOLERANCE)
    return max(0.0, 100 * (usual - float(rates.min()))), int(low[-1]) + width if len(low) else 0


def late(rows: Served, since: int, until: int, *, new: bool) -> tuple[int, float]:
    """Of one process: requests that began after the switch and got the other version than the one of now (`new` or the
    old one); and how long after the switch the last of them began, ms."""
    part = rows[(rows["at"] > since) & (rows["at"] < until) & (rows["new"] != new) & ~rows["failed"]]
    return len(part), (float(part["at"].max()) - since) / 1e6 if len(part) else 0.0
