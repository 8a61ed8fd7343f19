"""`DriftWatch`: a monitor for threads and processes, whose histograms live in the cache's folder.

Each process has a slot `drift/N.msgpack` while it lives (a kernel lock on `drift/N.lock`) and goes on from what the
slot's last holder left. A baseline that another slot learned is adopted, so that processes compare with one past.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy.typing as npt

from mmcache.forks import QuietLock
from mmcache.keys.drift.base import DriftAlarm, DriftSettings, StreamStatus
from mmcache.keys.drift.monitor import DriftMonitor
from mmcache.keys.drift.state import pack, unpack
from mmcache.keys.drift.statistics import FrozenStatistics, write_private
from mmcache.keys.drift.stream import Watcher
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import MMCacheError

FOLDER = "drift"
SLOTS = 64
"""Processes whose histograms are kept; further ones watch, and forget at their end."""
SAVE_SECONDS = 10.0
"""Between two saves, unless an alarm is raised."""
MOST_BYTES = 1 << 28
"""A file that claims more is not read."""


def _nothing(alarm: DriftAlarm) -> None:
    return


class DriftWatch:
    """`observe` may be called from any thread; it takes about 0.1 ms, and once about a second for the baseline.

    Call it off the hot path. What goes wrong with the files costs only what they would have kept.

    root: the cache's folder; None = nothing is kept. alarm: called, outside of any lock, for each alarm raised.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        settings: DriftSettings | None = None,
        alarm: Callable[[DriftAlarm], None] = _nothing,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or DriftSettings()
        self._folder = None if root is None else Path(root) / FOLDER
        self._alarm, self._clock = alarm, clock or SystemClock()
        self._lock = QuietLock()
        self._monitor = DriftMonitor(self._settings)
        self._process = self._slot = self._descriptor = -1
        self._saved, self._saved_at = 0, float("-inf")
        self._frozen: dict[tuple[str, str], FrozenStatistics] = {}  # as given, for a process that is forked

    def freeze(self, stream: str, statistics: FrozenStatistics, tag: str = "") -> None:
        """Normalise `stream` by these statistics; starts its baseline unless it has them already."""
        with self._lock:
            self._settle()
            self._freeze(stream, statistics, tag)
            kept = {name: one for name, one in self._frozen.items() if name in self._monitor.stages}
            self._frozen = kept | {(stream, tag): statistics}

    def observe(self, stream: str, features: npt.ArrayLike, *, tag: str = "") -> list[DriftAlarm]:
        """As `DriftMonitor.observe`, now."""
        with self._lock:
            self._settle()
            if (stream, tag) not in self._monitor.stages:
                self._adopt(stream, tag)
            raised = self._monitor.observe(stream, features, now=self._clock.wall(), tag=tag)
            seen = sum(_seen(status) for status in self._monitor.status().values())
            due = self._clock.monotonic() - self._saved_at >= SAVE_SECONDS
            if raised or (due and seen - self._saved >= self._settings.window):
                self._saved, self._saved_at = seen, self._clock.monotonic()
                self._save()
        for one in raised:
            self._alarm(one)
        return raised

    def status(self) -> dict[str, StreamStatus]:
        """What this process sees."""
        with self._lock:
            return dict(self._monitor.status())

    def close(self) -> None:
        """Save, and leave the slot to another process."""
        with self._lock:
            if self._process == os.getpid():
                self._save()
            self._leave()

    def _freeze(self, stream: str, statistics: FrozenStatistics, tag: str) -> None:
        if (stream, tag) not in self._monitor.stages:
            self._adopt(stream, tag, statistics)
        stage = self._monitor.stages.get((stream, tag))
        held = stage.baseline.statistics if isinstance(stage, Watcher) else stage and stage.statistics
        if held != statistics:
            self._monitor.freeze(stream, statistics, tag)

    def _settle(self) -> None:
        """In a new process (also a forked one): find a slot, and go on from what its last holder left."""
        if self._process == os.getpid():
            return
        self._leave()
        self._process = os.getpid()
        if self._folder is None:
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._slot, self._descriptor = _free_slot(self._folder)
        if self._slot >= 0:
            found = read(self._path)
            fits = found is not None and found[0].settings == self._settings
            self._monitor = found[0] if found is not None and fits else DriftMonitor(self._settings)
            for (stream, tag), statistics in self._frozen.items():
                self._freeze(stream, statistics, tag)

    @property
    def _path(self) -> Path:
        return (self._folder or Path()) / f"{self._slot}.msgpack"

    def _leave(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._process = self._slot = self._descriptor = -1

    def _adopt(self, stream: str, tag: str, frozen: FrozenStatistics | None = None) -> None:
        """Take the baseline of another slot, if one has learned it; by these statistics, where some are given."""
        if self._folder is None:
            return
        for monitor, _ in saved(self._folder.parent):
            stage = monitor.stages.get((stream, tag))
            if not isinstance(stage, Watcher) or monitor.settings != self._settings:
                continue
            if frozen is None or stage.baseline.statistics == frozen:
                self._monitor.adopt(stream, stage.baseline, tag)
                return

    def _save(self) -> None:
        if self._slot >= 0:
            with suppress(OSError):
                write_private(self._path, pack(self._monitor, self._clock.wall()))


def _seen(status: StreamStatus) -> int:
    return status.learned + status.samples


def _free_slot(folder: Path) -> tuple[int, int]:
    """Number and locked descriptor; (−1, −1) where all are taken."""
    for number in range(SLOTS):
        descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        return number, descriptor
    return -1, -1


def read(path: Path) -> tuple[DriftMonitor, float] | None:
    """A slot's monitor and when it was saved; None where there is none that can be read."""
    try:
        return unpack(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
    except (OSError, MMCacheError):
        return None


def saved(root: Path) -> Iterator[tuple[DriftMonitor, float]]:
    """Every slot's monitor in the cache folder `root`, the latest first."""
    found = [read(path) for path in sorted((root / FOLDER).glob("*.msgpack"))]
    yield from sorted((each for each in found if each is not None), key=lambda each: -each[1])
