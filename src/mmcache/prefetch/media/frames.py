"""Frames of a video file by PyAV: those worth keeping, and any one by its time.

Pixels are upright (the display matrix is followed), so a frame here is the picture that `keys.video` makes of it, and a
later request with that picture hits. Times come from the frames' own timestamps, whatever the frame rate does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.container import MOST_PIXELS, decoded, opened, origin
from mmcache.prefetch.media.scenes import HEIGHT, WIDTH, Kept, SceneOptions, Scenes
from mmcache.prefetch.media.task import Faults

if TYPE_CHECKING:
    from PIL.Image import Image


INDEXED = frozenset({"mov", "matroska", "avi"})
"""Formats with an index of key frames, which are sought in. In others (MPEG streams) a seek lands within a group of
pictures, or times begin anew, and another frame would come out: they are decoded from the start."""


@dataclass(frozen=True, slots=True)
class Still:
    """A frame that is worth a model's time."""

    start_ms: int
    """Of its scene."""
    frame_ms: int
    make: Callable[[], Image]
    """Its upright picture."""
    size: int
    """Bytes of its pixels."""
    seconds: float = 0.0
    """That decoding took since the one before."""


@dataclass(slots=True)
class Reel:
    """What is known of a video after its frames were read."""

    frames: int = 0
    width: int = 0
    height: int = 0
    rotation: int = 0
    last_ms: int = 0


def stills(
    path: Path, options: SceneOptions, faults: Faults, reel: Reel, most_frames: int = 1 << 30
) -> Iterator[Still]:
    """Frames worth keeping, in order; `reel` says what was read. Raises `InvalidInputError` for what is no video."""
    scenes: Scenes[Any] = Scenes(options)
    kept, began = 0, perf_counter()

    with opened(path) as container:
        for ms, frame in _timed(container, faults):
            reel.frames += 1
            reel.last_ms = ms
            if not reel.width:
                turn = round(frame.rotation) % 360
                sides = (frame.width, frame.height)
                reel.rotation, (reel.width, reel.height) = turn, sides[::-1] if turn in (90, 270) else sides
            for found in scenes.look(ms, _grey(frame), frame):
                yield _still(found, began)
                kept, began = kept + 1, perf_counter()
            if kept >= most_frames:
                faults.add("video", ms, f"more than {most_frames} frames are worth keeping; the rest is left alone")
                return
        for found in scenes.end():
            yield _still(found, began)


def _still(found: Kept[Any], began: float) -> Still:
    picture = upright(found.frame)
    size = 3 * picture.width * picture.height
    return Still(found.start_ms, found.frame_ms, lambda: picture, size, perf_counter() - began)


def frame_at(path: Path | str, ms: int) -> Image:
    """The upright picture of the frame that is shown at `ms`: the same pixels that warming has seen.

    Raises `InvalidInputError` where there is none.
    """
    faults, last = Faults(), None
    with opened(Path(path)) as container:
        if not container.streams.video:
            raise InvalidInputError("the file has no video stream")
        stream = container.streams.video[0]
        if ms > 0 and stream.time_base and INDEXED.intersection(container.format.name.split(",")):
            import av

            target = int((origin(container) + ms / 1000) / float(stream.time_base))
            with suppress(av.FFmpegError, OSError):  # then from the start
                container.seek(max(0, target), stream=stream, backward=True)
        for now, frame in _timed(container, faults):
            if now > ms:
                break
            last = frame
    return _from_start(path, ms) if last is None else upright(last)  # the seek went too far


def _from_start(path: Path | str, ms: int) -> Image:
    last = None
    with opened(Path(path)) as container:
        for now, frame in _timed(container, Faults()):
            if now > ms and last is not None:
                break
            last = frame
    if last is None:
        raise InvalidInputError(f"there is no frame at {ms} ms")
    return upright(last)


def upright(frame: Any) -> Image:
    """RGB, turned as the display matrix says."""
    from PIL.Image import Transpose

    picture: Image = frame.to_image()
    turns = {90: Transpose.ROTATE_90, 180: Transpose.ROTATE_180, 270: Transpose.ROTATE_270}
    turn = turns.get(round(frame.rotation) % 360)
    return picture if turn is None else picture.transpose(turn)


def _timed(container: Any, faults: Faults) -> Iterator[tuple[int, Any]]:
    """(milliseconds, frame) of all that are whole; times never fall."""
    if not container.streams.video:
        return
    stream = container.streams.video[0]
    context = stream.codec_context
    if context is None:
        faults.add("video", 0, "it is of a codec that cannot be decoded here")
        return
    if context.width * context.height > MOST_PIXELS:
        raise InvalidInputError(f"the video has more than {MOST_PIXELS} pixels a frame")
    stream.thread_type = "AUTO"
    start, last, step = origin(container), 0, 1000 / float(stream.average_rate or 25)
    for number, frame in enumerate(decoded(container, stream, faults)):
        guess = round(last + step) if number else 0
        ms = guess if frame.time is None else round(1000 * (frame.time - start))
        if frame.is_corrupt:
            faults.add("video", max(ms, last), "a frame is damaged")
            continue
        if frame.width * frame.height > MOST_PIXELS:
            faults.add("video", max(ms, last), f"a frame has more than {MOST_PIXELS} pixels")
            continue
        if ms < last:
            faults.add("video", last, f"time runs backwards, to {ms} ms")
            ms = last
        last = ms
        yield ms, frame


def _grey(frame: Any) -> Any:
    """uint8 [HEIGHT, WIDTH]: each cell the mean of what it covers."""
    small = frame.reformat(width=WIDTH, height=HEIGHT, format="gray8", interpolation="AREA")
    return np.ascontiguousarray(small.to_ndarray()[:HEIGHT, :WIDTH])
