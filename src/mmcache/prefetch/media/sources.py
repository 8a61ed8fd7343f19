"""Where tasks come from: a file's frames and speech, decoded as they are needed, or as a journal has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.prefetch.media import results
from mmcache.prefetch.media.encoders import Encoders
from mmcache.prefetch.media.frames import Reel, Still, frame_at, stills
from mmcache.prefetch.media.journal import Journal, Noted, faults_of
from mmcache.prefetch.media.scenes import SceneOptions
from mmcache.prefetch.media.sound import RATE, Mono, Segment, segments, sound_of
from mmcache.prefetch.media.task import Faults

BLIND_MS = 30_000
"""Stretches that sound is cut into where nobody listens for speech."""

T = TypeVar("T")


@dataclass(slots=True)
class Video:
    """Frames worth keeping; `reel` and `faults` are whole at the end."""

    path: Path
    noted: Noted
    journal: Journal
    options: SceneOptions
    most_frames: int
    reel: Reel = field(default_factory=Reel)
    faults: Faults = field(default_factory=Faults)

    def __iter__(self) -> Iterator[Still]:
        if (facts := self.noted.ended.get("video")) is not None:
            self.reel = Reel(**{name: int(facts[name]) for name in asdict(Reel())})
            self.faults.take(faults_of(facts), int(facts["fault_count"]))
            for start, frame in sorted(set(self.noted.scenes)):  # two processes at a time note them twice
                size = 3 * self.reel.width * self.reel.height
                yield Still(start, frame, once(partial(frame_at, self.path, frame)), size)
            return
        known = set(self.noted.scenes)
        try:
            for still in stills(self.path, self.options, self.faults, self.reel, self.most_frames):
                if (still.start_ms, still.frame_ms) not in known:
                    self.journal.scene(still.start_ms, still.frame_ms)
                yield still
        except InvalidInputError as error:
            self.faults.add("video", self.reel.last_ms, str(error))
            return  # not noted as read: it is tried again
        self.journal.ended("video", asdict(self.reel) | _told(self.faults))


@dataclass(slots=True)
class Audio:
    """Stretches of speech; `faults` is whole at the end."""

    path: Path
    noted: Noted
    journal: Journal
    encoders: Encoders
    most_seconds: float
    faults: Faults = field(default_factory=Faults)
    _deaf: bool = False
    """The listener failed somewhere."""

    def __iter__(self) -> Iterator[Segment]:
        if (facts := self.noted.ended.get("audio")) is not None:
            self.faults.take(faults_of(facts), int(facts["fault_count"]))
            for start, end in sorted(set(self.noted.speech)):
                yield Segment(start, end, once(partial(sound_of, self.path, start, end)))
            return
        known = set(self.noted.speech)
        try:
            for segment in segments(self.path, self._listen, self.faults, self.most_seconds):
                if (segment.start_ms, segment.end_ms) not in known:
                    self.journal.spoken(segment.start_ms, segment.end_ms)
                yield segment
        except InvalidInputError as error:
            self.faults.add("audio", 0, str(error))
            return
        if self._deaf:
            self.journal.unheard()
        else:
            self.journal.ended("audio", _told(self.faults))

    def _listen(self, samples: Mono) -> list[tuple[int, int]]:
        whole = 1000 * samples.size // RATE
        listen = self.encoders.listen
        if listen is None:
            return [(start, min(start + BLIND_MS, whole)) for start in range(0, whole, BLIND_MS)]
        try:
            return results.spans(listen((np.ascontiguousarray(samples), RATE)), whole)
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of the user's; the rest of the file goes on
            self._deaf = True
            self.faults.add("listen", 0, type(error).__name__)
            return []


def once(make: Callable[[], T]) -> Callable[[], T]:
    """`make`, called when first asked for; what it made is kept."""
    made: list[T] = []

    def kept() -> T:
        if not made:
            made.append(make())
        return made[0]

    return kept


def _told(faults: Faults) -> dict[str, Any]:
    told = [(fault.where, fault.at_ms, fault.what) for fault in faults.first]
    return {"faults": told, "fault_count": faults.count}
