"""A monitor at rest: msgpack, bounded, checked on the way back."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from mmcache.keys.drift.base import DriftAlarm, DriftSettings
from mmcache.keys.drift.baseline import Baseline, Learner
from mmcache.keys.drift.monitor import DriftMonitor
from mmcache.keys.drift.statistics import FrozenStatistics, decoded
from mmcache.keys.drift.stream import Tally, Watcher
from mmcache.model.errors import CorruptFrameError, InvalidInputError, SettingsError

VERSION = 1
WHAT = "drift histograms"
TINY = 1e-300
"""What is divided by is above 0."""


class Array(msgspec.Struct, frozen=True, array_like=True):
    """Little-endian, in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class StoredBaseline(msgspec.Struct, frozen=True):
    statistics: bytes
    axes: Array
    borders: Array
    counts: Array
    mean: Array
    deviation: Array
    short: Array
    long: Array
    since: float
    until: float


class StoredTally(msgspec.Struct, frozen=True):
    counts: Array
    sums: Array
    samples: int


class StoredWatcher(msgspec.Struct, frozen=True, tag="watcher"):
    baseline: StoredBaseline
    samples: int
    short: StoredTally
    long: StoredTally
    divergence: float
    threshold: float
    since: float | None
    quiet: int
    raised: int
    alarms: list[DriftAlarm]


class StoredLearner(msgspec.Struct, frozen=True, tag="learner"):
    statistics: bytes | None
    raw: Array
    rows: Array
    samples: int
    began: float


class StoredStream(msgspec.Struct, frozen=True):
    name: str
    tag: str
    stage: StoredWatcher | StoredLearner


class StoredMonitor(msgspec.Struct, frozen=True):
    version: int
    settings: DriftSettings
    saved: float
    streams: list[StoredStream]


def pack(monitor: DriftMonitor, saved: float) -> bytes:
    """All of `monitor`, as it is at `saved` (Unix seconds)."""
    streams = [StoredStream(name, tag, _stage(stage)) for (name, tag), stage in monitor.stages.items()]
    return msgspec.msgpack.encode(StoredMonitor(VERSION, monitor.settings, saved, streams))


def unpack(data: bytes) -> tuple[DriftMonitor, float]:
    """The monitor that `pack` stored, and when. Raises `CorruptFrameError`, `FormatVersionError`."""
    try:
        stored: StoredMonitor = decoded(data, StoredMonitor, VERSION, WHAT)
        monitor = DriftMonitor(stored.settings)
        for stream in stored.streams:
            monitor.stages[stream.name, stream.tag] = _stage_of(stream, stored.settings)
    except (SettingsError, InvalidInputError) as error:
        raise CorruptFrameError(f"these {WHAT} are damaged: {error}") from error
    return monitor, stored.saved


def _array(values: Any, dtype: str) -> Array:
    packed = np.ascontiguousarray(values, dtype)
    return Array(dtype, packed.shape, packed.tobytes())


def _array_of(stored: Array, dtype: str, *shape: int | None, least: float = -math.inf) -> Any:
    """Raises `CorruptFrameError` unless it has that dtype and shape (None = any length), and sound values."""
    fits = len(stored.shape) == len(shape) and all(
        size >= 0 and want in (None, size) for size, want in zip(stored.shape, shape, strict=True)
    )
    expected = math.prod(stored.shape) * np.dtype(dtype).itemsize if fits else -1  # numpy's product wraps around
    if stored.dtype != dtype or len(stored.data) != expected:
        raise CorruptFrameError(f"an array of {WHAT} is {stored.dtype}{stored.shape}, not {dtype}{shape}")
    found = np.frombuffer(stored.data, dtype)
    if not np.isfinite(found).all() or (found < least).any():
        raise CorruptFrameError(f"an array of {WHAT} has values that are not finite, or too small")
    return found.reshape(stored.shape)


def _stage(stage: Learner | Watcher) -> StoredWatcher | StoredLearner:
    if isinstance(stage, Learner):
        raw = np.concatenate(stage.raw) if stage.raw else np.zeros((0, 0))
        rows = np.concatenate(stage.rows) if stage.rows else np.zeros((0, 0))
        frozen = stage.statistics.to_bytes() if stage.statistics else None
        return StoredLearner(frozen, _array(raw, "<f4"), _array(rows, "<f4"), stage.samples, stage.began)
    base = stage.baseline
    mean, deviation, short, long = (_array(part, "<f8") for part in (base.mean, base.deviation, base.short, base.long))
    stored = StoredBaseline(
        base.statistics.to_bytes(), _array(base.axes, "<f4"), _array(base.borders, "<f4"), _array(base.counts, "<i8"),
        mean, deviation, short, long, base.since, base.until,
    )  # fmt: skip
    return StoredWatcher(
        stored, stage.samples, _tally(stage.short), _tally(stage.long), stage.divergence, stage.threshold,
        stage.since, stage.quiet, stage.raised, stage.alarms,
    )  # fmt: skip


def _tally(tally: Tally) -> StoredTally:
    return StoredTally(_array(tally.counts, "<i8"), _array(tally.sums, "<f8"), tally.samples)


def _stage_of(stream: StoredStream, settings: DriftSettings) -> Learner | Watcher:
    stored = stream.stage
    if isinstance(stored, StoredLearner):
        frozen = FrozenStatistics.from_bytes(stored.statistics) if stored.statistics is not None else None
        raw, rows = (_array_of(part, "<f4", None, None) for part in (stored.raw, stored.rows))
        if len(raw) + len(rows) != stored.samples or (len(rows) and rows.shape[1] != settings.projections):
            raise CorruptFrameError(f"{WHAT} of {stream.name!r} do not add up")
        limit = settings.window if frozen is None else settings.samples
        if not 0 <= stored.samples < limit or (len(rows) if frozen is None else len(raw)):
            raise CorruptFrameError(f"{WHAT} of {stream.name!r} do not add up")
        parts = [raw] if len(raw) else [], [rows] if len(rows) else []
        return Learner(stream.name, settings, frozen, *parts, stored.samples, stored.began)
    base, k, bins = stored.baseline, settings.projections, settings.bins
    frozen = FrozenStatistics.from_bytes(base.statistics)
    baseline = Baseline(
        frozen, _array_of(base.axes, "<f4", frozen.width, k), _array_of(base.borders, "<f4", k, bins - 1),
        _array_of(base.counts, "<i8", k, bins, least=0), _array_of(base.mean, "<f8", k),
        _array_of(base.deviation, "<f8", k, least=TINY), _array_of(base.short, "<f8", k + 1, least=TINY),
        _array_of(base.long, "<f8", k + 1, least=TINY), base.since, base.until, settings.seed,
    )  # fmt: skip
    watcher = Watcher(stream.name, settings, baseline)
    watcher.short, watcher.long = _tally_of(stored.short, settings), _tally_of(stored.long, settings)
    limit = settings.window * settings.long
    if not (0 <= watcher.short.samples < settings.window and 0 <= watcher.long.samples < limit):
        raise CorruptFrameError(f"{WHAT} of {stream.name!r} do not add up")
    watcher.samples, watcher.divergence, watcher.threshold = stored.samples, stored.divergence, stored.threshold
    watcher.since, watcher.quiet, watcher.raised = stored.since, stored.quiet, stored.raised
    watcher.alarms = list(stored.alarms)
    return watcher


def _tally_of(stored: StoredTally, settings: DriftSettings) -> Tally:
    counts = _array_of(stored.counts, "<i8", settings.projections, settings.bins, least=0)
    return Tally(counts, _array_of(stored.sums, "<f8", settings.projections), stored.samples)
