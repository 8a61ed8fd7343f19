"""`DriftMonitor`: watches streams of features for a move of their distribution.

Features are normalised by frozen statistics, projected on fixed random directions and counted in bins that the
baseline filled equally. Every window is compared with the baseline by KL(now ‖ baseline); thresholds come from the
baseline, for a stated number of false alarms a month (see `threshold`).

What it sees: a move of the distribution that arrives, whether the inputs moved or what computes the features. What it
does not: which of the two it was (`mmcache explain TRACE` compares components), and whether answers became wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy.typing as npt

from mmcache.keys.drift.base import DriftAlarm, DriftSettings, StreamStatus
from mmcache.keys.drift.baseline import Baseline, Learner
from mmcache.keys.drift.statistics import FrozenStatistics, checked
from mmcache.keys.drift.stream import Watcher
from mmcache.model.errors import SettingsError

MOST_STREAMS = 64


@dataclass
class Entry:
    """A stream, learning or watched."""

    tag: str
    stage: Learner | Watcher


class DriftMonitor:
    """Many streams, each with its own baseline. Pure: time is an argument. Not thread-safe; bounded memory.

    >>> monitor = DriftMonitor(DriftSettings(window=4, long=1, baseline=3, projections=1, bins=2))
    >>> _ = monitor.observe("text", np.random.default_rng(0).normal(size=(20, 8)), now=0.0)
    >>> monitor.status()["text"].state
    'steady'
    """

    def __init__(self, settings: DriftSettings | None = None) -> None:
        self.settings = settings or DriftSettings()
        self.entries: dict[str, Entry] = {}

    def freeze(self, stream: str, statistics: FrozenStatistics, tag: str = "") -> None:
        """Use these frozen statistics for `stream`, e.g. those that its keys are made with; starts its baseline."""
        self._start(stream, tag, statistics)

    def adopt(self, stream: str, baseline: Baseline, tag: str = "") -> None:
        """Watch `stream` against a baseline that was learned elsewhere, with the same settings."""
        self._room(stream)
        self.entries[stream] = Entry(tag, Watcher(stream, self.settings, baseline))

    def observe(self, stream: str, features: npt.ArrayLike, *, now: float, tag: str = "") -> list[DriftAlarm]:
        """Take features [n, d] or [d] in; the alarms that they raised, mostly none.

        stream: usually the modality. now: Unix seconds. tag: what computed the features, e.g. a signature's digest;
        another tag than before starts another baseline: an upgrade is no drift. Raises `InvalidInputError` for NaN or
        another width, `SettingsError` for more than 64 streams.
        """
        rows = checked(features)
        entry = self.entries.get(stream)
        if entry is None or entry.tag != tag:
            entry = self._start(stream, tag, None)
        if isinstance(entry.stage, Learner):
            learner = entry.stage
            while len(rows) and not learner.complete:
                rows = rows[learner.take(rows, now) :]
            if not learner.complete:
                return []
            entry.stage = Watcher(stream, self.settings, learner.finish(now))
        return entry.stage.observe(rows, now) if len(rows) else []

    def _start(self, stream: str, tag: str, statistics: FrozenStatistics | None) -> Entry:
        self._room(stream)
        entry = self.entries[stream] = Entry(tag, Learner(stream, self.settings, statistics))
        return entry

    def _room(self, stream: str) -> None:
        if stream not in self.entries and len(self.entries) >= MOST_STREAMS:
            raise SettingsError(f"a monitor watches at most {MOST_STREAMS} streams; name them by modality, not by user")

    def status(self) -> Mapping[str, StreamStatus]:
        """Every stream as it is."""
        return {name: _status(name, entry, self.settings) for name, entry in sorted(self.entries.items())}


def _status(name: str, entry: Entry, settings: DriftSettings) -> StreamStatus:
    stage = entry.stage
    if isinstance(stage, Learner):
        frozen = stage.statistics.digest if stage.statistics else ""
        return StreamStatus(
            name, entry.tag, "learning", stage.samples, settings.samples, 0, 0.0, 0.0, None, 0, (), 0.0, frozen
        )
    base = stage.baseline
    return StreamStatus(
        name, entry.tag, "steady" if stage.since is None else "drifted", settings.samples, settings.samples,
        stage.samples, stage.divergence, stage.threshold, stage.since, stage.raised, tuple(stage.alarms),
        base.until - base.since, base.statistics.digest,
    )  # fmt: skip
