"""`DriftMonitor`: watches streams of features for a move of their distribution.

Features are normalised by frozen statistics, projected on fixed random directions and counted in bins that the
baseline filled equally. Every window is compared with the baseline by KL(now ‖ baseline); thresholds come from the
baseline, for a stated number of false alarms a month (see `threshold`).

What it sees: a move of the distribution that arrives, whether the inputs moved or what computes the features. What it
does not: which of the two it was (`mmcache explain TRACE` compares components), and whether answers became wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt

from mmcache.keys.drift.base import DriftAlarm, DriftSettings, StreamStatus
from mmcache.keys.drift.baseline import Baseline, Learner
from mmcache.keys.drift.statistics import FrozenStatistics, checked
from mmcache.keys.drift.stream import Watcher
from mmcache.model.errors import SettingsError

MOST_STREAMS = 64
MOST_TAGS = 4
"""Of one stream; a further one takes the place of what was observed longest ago."""


Stage = Learner | Watcher
Name = tuple[str, str]
"""Stream and tag."""


class DriftMonitor:
    """Many streams, each with its own baseline. Pure: time is an argument. Not thread-safe; bounded memory.

    >>> monitor = DriftMonitor(DriftSettings(window=4, long=1, baseline=3, projections=1, bins=2))
    >>> _ = monitor.observe("text", np.random.default_rng(0).normal(size=(20, 8)), now=0.0)
    >>> monitor.status()["text"].state
    'steady'
    """

    def __init__(self, settings: DriftSettings | None = None) -> None:
        self.settings = settings or DriftSettings()
        self.stages: dict[Name, Stage] = {}
        """What was observed last comes last."""

    def freeze(self, stream: str, statistics: FrozenStatistics, tag: str = "") -> None:
        """Use these frozen statistics for `stream`, e.g. those that its keys are made with; starts its baseline."""
        self._put((stream, tag), Learner(stream, self.settings, statistics))

    def adopt(self, stream: str, baseline: Baseline, tag: str = "") -> None:
        """Watch `stream` against a baseline that was learned elsewhere, with the same settings."""
        self._put((stream, tag), Watcher(stream, self.settings, baseline))

    def observe(self, stream: str, features: npt.ArrayLike, *, now: float, tag: str = "") -> list[DriftAlarm]:
        """Take features [n, d] or [d] in; the alarms that they raised, mostly none.

        stream: usually the modality. now: Unix seconds. tag: what computed the features, e.g. a signature's digest;
        each tag has a baseline of its own: an upgrade is no drift. Raises `InvalidInputError` for NaN or another width,
        `SettingsError` for more than 64 streams.
        """
        rows, name = checked(features), (stream, tag)
        if name not in self.stages:
            self._put(name, Learner(stream, self.settings))
        stage = self.stages[name] = self.stages.pop(name)
        if isinstance(stage, Learner):
            while len(rows) and not stage.complete:
                rows = rows[stage.take(rows, now) :]
            if not stage.complete:
                return []
            stage = self.stages[name] = Watcher(stream, self.settings, stage.finish(now))
        return stage.observe(rows, now) if len(rows) else []

    def _put(self, name: Name, stage: Stage) -> None:
        """Start anew under `name`, which is then the latest of its stream."""
        tags = [other for other in self.stages if other[0] == name[0]]
        if not tags and len({stream for stream, _ in self.stages}) >= MOST_STREAMS:
            raise SettingsError(f"a monitor watches at most {MOST_STREAMS} streams; name them by modality, not by user")
        if name not in tags and len(tags) >= MOST_TAGS:
            del self.stages[tags[0]]
        self.stages.pop(name, None)
        self.stages[name] = stage

    def status(self) -> Mapping[str, StreamStatus]:
        """Every stream as it is, by its name; one of an earlier tag by `NAME@TAG`."""
        newest = dict(self.stages.keys())
        named = {
            stream if newest[stream] == tag else f"{stream}@{tag}": _status(stream, tag, stage, self.settings)
            for (stream, tag), stage in self.stages.items()
        }
        return dict(sorted(named.items()))


def _status(name: str, tag: str, stage: Stage, settings: DriftSettings) -> StreamStatus:
    if isinstance(stage, Learner):
        frozen = stage.statistics.digest if stage.statistics else ""
        return StreamStatus(
            name, tag, "learning", stage.samples, settings.samples, 0, 0.0, 0.0, None, 0, (), 0.0, frozen
        )
    base = stage.baseline
    return StreamStatus(
        name, tag, "steady" if stage.since is None else "drifted", settings.samples, settings.samples,
        stage.samples, stage.divergence, stage.threshold, stage.since, stage.raised, tuple(stage.alarms),
        base.until - base.since, base.statistics.digest,
    )  # fmt: skip
