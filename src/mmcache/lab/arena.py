"""Every contender on every cell: our policies as registered, rivals, and what knows the future.

A cell is a trace, a cost model with its seed, and a memory size. Cells are independent, so they run in processes.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mmcache import plugins
from mmcache.lab import rivals
from mmcache.lab.bounds import belady, flow_bound
from mmcache.lab.replay import Hits, policy_named, replay, score
from mmcache.lab.table import Progress
from mmcache.lab.traces import Trace, published, synthetic
from mmcache.lab.traces.encoder_costs import costed
from mmcache.model.errors import AssetError

PERCENTS = (1, 10, 20)
"""Of the footprint: the sizes of memory."""
UNIFORM, ENCODER = "uniform", "encoder"
"""Cost models: 1 a block, or measured encoder seconds by modality and size."""
BELADY, BOUND = "Belady", "bound"
_LONGEST = {"w106": 15, "mooncake": 3}
"""Requests, in 100,000: what takes longest goes first, so that processes end together."""
OURS, RIVAL, OFFLINE = "ours", "rival", "offline"
TUNED, HELD_OUT = "tuned", "held-out"


@dataclass(frozen=True)
class Cell:
    """One task."""

    trace: str
    """A published trace, or a synthetic pattern."""
    model: str
    seed: int
    percent: int

    @property
    def name(self) -> str:
        """Without the seed."""
        return f"{self.trace}/{self.model}/{self.percent}%"


@dataclass(frozen=True)
class Outcome:
    """One contender on one part of a cell."""

    cell: Cell
    contender: str
    kind: str
    """`ours`, `rival` or `offline`."""
    part: str
    saved: float
    """0…1, of the cost: the cost-weighted hit ratio."""
    object_misses: float | None = None
    """0…1, of the requests; None for a bound, which is of the cost only."""
    byte_misses: float | None = None


@dataclass(frozen=True)
class Input:
    """Where traces come from."""

    folder: Path | None
    """Published traces; None = synthetic patterns."""
    requests: int | None = None
    """Only so many of each trace."""

    @property
    def names(self) -> tuple[str, ...]:
        """What there is."""
        return tuple(published.PUBLISHED) if self.folder is not None else tuple(synthetic.PATTERNS)


def cells(names: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """All cells of these traces, those that take longest first."""
    models = [(UNIFORM, 0), *((ENCODER, seed) for seed in seeds)]
    return [
        Cell(name, model, seed, percent)
        for name in sorted(names, key=lambda name: -_LONGEST.get(name, 0))
        for model, seed in models
        for percent in PERCENTS
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _raw(source: Input, name: str) -> Trace:
    if source.folder is None:
        return synthetic.pattern(name, source.requests or 50_000)
    whole = published.read(name, source.folder)
    return whole if source.requests is None else whole.first(source.requests)


@lru_cache(maxsize=1)
def trace_of(source: Input, name: str, model: str, seed: int) -> Trace:
    """The trace of a cell. Raises `AssetError`."""
    raw = _raw(source, name)
    return raw if model == UNIFORM else costed(raw, seed)


def contend(cell: Cell, source: Input) -> list[Outcome]:
    """Every contender on `cell`."""
    trace = trace_of(source, cell.trace, cell.model, cell.seed)
    limit = trace.capacity(cell.percent)
    parts = {TUNED: trace.tuned, HELD_OUT: trace.held_out}
    found: list[Outcome] = []

    def note(contender: str, kind: str, hits: Hits) -> None:
        for part, where in parts.items():
            sums = score(trace, hits, where)
            found.append(
                Outcome(cell, contender, kind, part, sums.saved, 1 - sums.hit_ratio, 1 - sums.byte_hit_ratio)
            )  # fmt: skip

    for name in plugins.names("policies"):
        note(name, OURS, replay(trace, policy_named(name), limit).hits)
    for name in rivals.available():
        note(name, RIVAL, rivals.hits(trace, name, limit))
    if cell.model == UNIFORM and int(trace.sizes.min()) == int(trace.sizes.max()):
        note(BELADY, OFFLINE, belady(trace, limit))
    found += [
        Outcome(cell, BOUND, OFFLINE, part, flow_bound(trace, limit, where)) for part, where in parts.items()
    ]  # fmt: skip
    return found


def run(tasks: Sequence[Cell], source: Input, progress: Progress, processes: int | None = None) -> Iterator[Outcome]:
    """All outcomes, cell by cell as they are done. `processes`: 1 = in this one; None = one a core, at most four.

    Raises `AssetError` where a trace is missing, or a process died.
    """
    workers = processes or min(4, os.cpu_count() or 1)
    if workers == 1:
        for done, cell in enumerate(tasks):
            progress(f"{cell.name} seed {cell.seed}" if len(tasks) < 4 else "cells", done, len(tasks))
            yield from contend(cell, source)
        progress("cells", len(tasks), len(tasks))
        return
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            waiting = [pool.submit(contend, cell, source) for cell in tasks]
            try:
                for done, one in enumerate(as_completed(waiting)):
                    progress("cells", done, len(tasks))
                    yield from one.result()
            finally:  # interrupted or failed: what has not begun shall not
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool as error:
        raise AssetError("a process that replayed died, killed or crashed inside a rival; run it again") from error
    progress("cells", len(tasks), len(tasks))
