"""`warm_video`: frames, print and speech of a video file, computed before anybody asks for them.

Three queues of tasks share the work (`schedule.py`). They are filled as the file is decoded, a bounded number of bytes
ahead, and every model's answer passes through the cache: what is there already is not computed. A journal
(`journal.py`) lets a later call go on where this one was stopped. At its end stands a `Timeline`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.cache import Cache
from mmcache.encoder import Encoder
from mmcache.keys.region import Region
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.prefetch.media import results
from mmcache.prefetch.media.container import facts
from mmcache.prefetch.media.encoders import Encoders, packaged
from mmcache.prefetch.media.frames import Still
from mmcache.prefetch.media.journal import Journal, Noted
from mmcache.prefetch.media.scenes import SceneOptions
from mmcache.prefetch.media.schedule import WEIGHTS, Schedule
from mmcache.prefetch.media.sound import RATE, Segment
from mmcache.prefetch.media.sources import Audio, Video
from mmcache.prefetch.media.task import KINDS, Faults, Kind, Task
from mmcache.prefetch.media.timeline import ReadRegion, Scene, Speech, Timeline
from mmcache.prefetch.media.uses import Uses

_MISSING = object()
_CHUNK = 1 << 20

Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)`, in seconds of the video."""


@dataclass(frozen=True, slots=True)
class WarmOptions:
    """How much, and how."""

    frames: bool = True
    ocr: bool = True
    asr: bool = True
    budget_seconds: float | None = None
    """Of work; None = until it is done."""
    budget_bytes: int | None = None
    """Of results."""
    resume: bool = True
    """Go on where an earlier call was stopped; else begin anew (what the cache holds still hits)."""
    scenes: SceneOptions = field(default_factory=SceneOptions)
    weights: Mapping[Kind, float] = field(default_factory=lambda: WEIGHTS)
    most_frames: int = 2_000
    """Frames of one file that are looked at."""
    most_seconds: float = 6 * 3600.0
    """Of sound."""
    waiting_bytes: int = 64 << 20
    """Decoded ahead."""

    def __post_init__(self) -> None:
        budgets = [budget for budget in (self.budget_seconds, self.budget_bytes) if budget is not None]
        if any(not budget > 0 for budget in budgets):
            raise SettingsError("a budget is more than 0; leave it out for none")
        if not (self.most_frames >= 1 and self.most_seconds > 0 and self.waiting_bytes >= 1):
            raise SettingsError("most_frames, most_seconds and waiting_bytes are positive")
        if set(self.weights) != set(KINDS) or any(not weight > 0 for weight in self.weights.values()):
            raise SettingsError(f"weights are positive, one each for {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True)
class Warmed:
    """What `warm_video` did."""

    timeline: Timeline
    done: dict[Kind, int]
    """Tasks that a model worked on, or that the cache answered."""
    known: dict[Kind, int]
    """Tasks that an earlier call had done."""
    failed: int
    """Tasks that a model failed at."""
    frames_seen: int
    bytes: int
    """Of results."""
    seconds: float
    weights: dict[Kind, float]
    """At its end."""


def warm_video(
    cache: Cache,
    file: Path | str,
    encoders: Encoders | Mapping[str, Encoder] | None = None,
    options: WarmOptions = WarmOptions(),
    *,
    uses: Uses | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Warmed:
    """Warm `cache` with what `encoders` make of a video file; default: those that the extra `warm` brings.

    What cannot be read is left out and told in the timeline. uses: what is known of how warmed blocks are used.
    Raises `InvalidInputError` for a file with neither pictures nor sound that can be decoded, `SettingsError` also
    where a model cannot be loaded.
    """
    path = Path(file)
    given = packaged(cache, ocr=options.ocr, asr=options.asr) if encoders is None else Encoders.of(encoders)
    return _Run(cache, path, given.only(frames=options.frames, ocr=options.ocr, asr=options.asr), options, uses, clock)(
        progress or (lambda what, done, total: None)
    )


@dataclass(slots=True)
class _Work:
    task: Task
    size: int
    """Bytes that a model is given."""
    seconds: float
    """That decoding them took."""
    still: Still | None = None
    segment: Segment | None = None


class _Run:
    def __init__(
        self, cache: Cache, path: Path, encoders: Encoders, options: WarmOptions, uses: Uses | None,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._cache, self._path, self._encoders, self._options, self._clock = cache, path, encoders, options, clock
        self._facts = facts(path)
        chosen = f"{options.scenes} {options.most_frames} {options.most_seconds}"  # with others, other frames are kept
        signature = Signature("warm-2", encoders.fingerprint().hex(), function=chosen)
        name = cache.key(_digest(path), modality="text", signature=signature)
        self._journal = Journal.under(cache.root, bytes(name))
        self._noted = self._journal.read() if options.resume else Noted()
        self._schedule: Schedule[_Work] = Schedule(options.weights)
        self._uses = uses
        for kind, (warmed, used) in (uses.counts() if uses is not None else {}).items():
            self._schedule.used(kind, warmed, used)
        self._done, self._known, self._failed, self._bytes = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), 0, 0
        self._faults = Faults()
        self._scenes: list[tuple[int, int]] = []
        self._read: list[tuple[int, int, Any, str, float]] = []
        self._heard: list[tuple[int, int, str]] = []
        self._at_ms = 0

    def __call__(self, progress: Progress) -> Warmed:
        began, complete = self._clock(), True
        encoders, options = self._encoders, self._options
        video = Video(self._path, self._noted, self._journal, options.scenes, options.most_frames)
        audio = Audio(self._path, self._noted, self._journal, encoders, options.most_seconds)
        looks, hears = bool(encoders.frame or encoders.read), encoders.hear is not None
        stills = iter(video) if looks and self._facts.has_video else iter(())
        speech = iter(audio) if hears and self._facts.has_audio else iter(())
        total = max(1, self._facts.duration_ms // 1000)
        self._journal.begin(fresh=not options.resume)
        try:
            while True:
                stills, speech = self._fill(stills, speech)
                if not len(self._schedule):
                    break
                if self._spent(self._clock() - began):
                    complete = False
                    break
                taken = self._schedule.take()
                assert taken is not None
                self._work(taken[1])
                progress(self._path.name, min(total, self._at_ms // 1000), total)
        finally:
            self._journal.close()
        if complete and not (video.reel.frames or self._facts.has_audio or not self._facts.has_video):
            raise InvalidInputError(f"no frame of {self._path.name} can be decoded, and it has no sound")
        progress(self._path.name, total, total)
        if self._journal.lost:
            self._faults.add("journal", 0, f"it cannot be kept: {self._journal.lost}")
        for source in (video.faults, audio.faults):
            self._faults.take(source.first, source.count)
        return Warmed(
            self._timeline(video, complete), self._done, self._known, self._failed, video.reel.frames, self._bytes,
            self._clock() - began, self._schedule.weights(),
        )  # fmt: skip

    def _spent(self, seconds: float) -> bool:
        options = self._options
        return (options.budget_seconds is not None and seconds >= options.budget_seconds) or (
            options.budget_bytes is not None and self._bytes >= options.budget_bytes
        )

    # Tasks come in ---------------------------------------------------------------------------------------------------

    def _fill(self, stills: Iterator[Still], speech: Iterator[Segment]) -> tuple[Iterator[Still], Iterator[Segment]]:
        """Decode until each queue has work, or enough bytes wait, or there is no more."""
        schedule, encoders = self._schedule, self._encoders
        wanted: dict[Kind, Encoder | None] = {"frame": encoders.frame, "ocr": encoders.read}
        kinds = [kind for kind, encoder in wanted.items() if encoder is not None]
        while any(not schedule.waiting(kind) for kind in kinds) and self._room():
            still = next(stills, None)
            if still is None:
                break
            self._seen(still)
        while not schedule.waiting("asr") and self._room():
            segment = next(speech, None)
            if segment is None:
                break
            start, end = segment.start_ms, segment.end_ms
            task = Task("asr", asr_offset=start / 1000, asr_end=end / 1000)
            schedule.add("asr", segment.size, _Work(task, segment.size, segment.seconds, segment=segment))
        return stills, speech

    def _room(self) -> bool:
        return not len(self._schedule) or self._schedule.waiting_bytes < self._options.waiting_bytes

    def _seen(self, still: Still) -> None:
        self._scenes.append((still.start_ms, still.frame_ms))
        schedule, ms = self._schedule, still.frame_ms
        kinds: list[Kind] = ["frame", "ocr"]
        for kind, wanted in zip(kinds, (self._encoders.frame, self._encoders.read), strict=True):
            if wanted is not None:
                schedule.add(kind, still.size, _Work(Task(kind, frame_ts=ms), still.size, still.seconds, still))

    # Tasks are done --------------------------------------------------------------------------------------------------

    def _work(self, work: _Work) -> None:
        task = work.task
        self._at_ms = max(self._at_ms, task.at_ms)
        values = self._recall(task)
        if values is not None:
            self._known[task.kind] += 1
            self._tell(work, values)
            return
        keys: list[Key] = []
        values = []
        step, began = "", self._clock()
        try:
            for name, encoder, source, region in self._steps(work, values):
                step = name
                key, value = _ask(encoder, source, region)
                keys.append(key)
                values.append(value)
                self._bytes += results.nbytes(value)
            self._tell(work, values)
        except SettingsError:  # a model cannot be loaded: no task of its kind will do better
            raise
        except Exception as error:  # noqa: BLE001 - a model of the user's; the other tasks go on
            self._failed += 1
            known = isinstance(error, MMCacheError)
            self._faults.add(step or task.kind, task.at_ms, str(error) if known else type(error).__name__)
            if step == "text":  # what was read or heard is known all the same
                self._tell(work, values)
            return
        self._done[task.kind] += 1
        self._schedule.took(task.kind, work.size, work.seconds + self._clock() - began)
        self._journal.done(task, keys)
        if self._uses is not None:
            self._uses.warmed(task.kind, keys)

    def _steps(self, work: _Work, values: list[Any]) -> Iterator[tuple[str, Encoder, Any, Region | None]]:
        """(name, encoder, input, region) one after another; `values` holds what came of those before."""
        task, encoders = work.task, self._encoders
        if work.segment is not None:
            assert encoders.hear is not None
            yield "hear", encoders.hear, (work.segment.make(), RATE), None
        else:
            assert work.still is not None
            picture = work.still.make()
            if task.kind == "frame":
                assert encoders.frame is not None
                yield "frame", encoders.frame, picture, None
                return
            if task.roi_bbox is None:
                if encoders.find is not None:
                    yield "find", encoders.find, picture, None
                return
            assert encoders.read is not None
            x, y, width, height = task.roi_bbox
            region = Region.whole(*picture.size).crop((x, y, x + width, y + height))
            yield "read", encoders.read, picture, region
        if encoders.text is not None and (text := results.words(values[0])[0]):
            yield "text", encoders.text, text, None

    def _recall(self, task: Task) -> list[Any] | None:
        """What the blocks hold that an earlier call made; None where it has not, or one of them is gone."""
        keys = self._noted.done.get(task)
        if keys is None:
            return None
        values = [self._cache.get(key, _MISSING) for key in keys]
        return None if any(value is _MISSING for value in values) else values

    def _tell(self, work: _Work, values: list[Any]) -> None:
        """Enter what came of a task, and add the tasks that it leads to."""
        task = work.task
        if work.segment is not None:
            text, _ = results.words(values[0])
            self._heard.append((work.segment.start_ms, work.segment.end_ms, text))
        elif task.kind == "ocr" and task.roi_bbox is not None:
            assert work.still is not None
            text, score = results.words(values[0])
            if text:
                self._read.append((work.still.start_ms, work.still.frame_ms, task.roi_bbox, text, score))
        elif task.kind == "ocr":
            assert work.still is not None
            whole = self._size(work.still)
            found = results.boxes(values[0], whole) if values else [(0, 0, *whole)]
            for box in reversed(found):
                region, size = Task("ocr", task.frame_ts, box), 3 * box[2] * box[3]
                self._schedule.add("ocr", size, _Work(region, size, 0.0, work.still), first=True)

    def _size(self, still: Still) -> tuple[int, int]:
        facts = self._noted.ended.get("video")
        return still.make().size if facts is None else (int(facts["width"]), int(facts["height"]))

    # What came of it -------------------------------------------------------------------------------------------------

    def _timeline(self, video: Video, complete: bool) -> Timeline:
        reel = video.reel
        duration = max(self._facts.duration_ms, reel.last_ms, max((end for _, end, _ in self._heard), default=0))
        starts = [*(start for start, _ in self._scenes[1:]), duration]
        scenes = [Scene(start, end, ms) for (start, ms), end in zip(self._scenes, starts, strict=False)]
        ends = {scene.frame_ms: scene.end_ms for scene in scenes}
        regions = sorted(self._read, key=lambda one: (one[1], one[2][1], one[2][0]))
        return Timeline(
            duration, reel.width, reel.height, reel.rotation, complete, tuple(scenes),
            tuple(ReadRegion(start, ends[ms], ms, box, text, score) for start, ms, box, text, score in regions),
            tuple(Speech(*one) for one in sorted(self._heard)), tuple(self._faults.first), self._faults.count,
        )  # fmt: skip


def _ask(encoder: Encoder, source: Any, region: Region | None) -> tuple[Key, Any]:
    key = encoder.key(source, region=region)
    return key, encoder(source) if region is None else encoder.region(source, region)


def _digest(path: Path) -> str:
    """Of the file's content, hex. Raises `InvalidInputError`."""
    hasher = blake3()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                hasher.update(chunk)
    except OSError as error:
        raise InvalidInputError(f"cannot read the video file {path}: {error}") from error
    return hasher.hexdigest()
