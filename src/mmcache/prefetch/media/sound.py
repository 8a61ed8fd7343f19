"""Sound of a video file by PyAV: mono float32 at 16 kHz, where sample n is what is heard at n ÷ 16 000 s.

That stays true where a track begins late, or packets are missing: silence is put in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.container import decoded, opened, origin
from mmcache.prefetch.media.task import Faults

RATE = 16_000
"""Samples a second."""
LARGEST_SLIP = RATE // 20
"""Samples by which a track may be off its timestamps before silence is put in, or samples left out: 50 ms."""
WINDOW = 300 * RATE
"""Samples that are listened to at a time; whole milliseconds."""
LONGEST_SILENCE = 6 * 3600 * RATE
"""A timestamp that is further ahead is taken for damage."""
UNFINISHED_MS = 300
"""Speech that ends closer than that to its window's end may go on after it."""

Mono = npt.NDArray[np.float32]
Listen = Callable[[Mono], list[tuple[int, int]]]
"""A window → where somebody speaks in it, in ms."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech."""

    start_ms: int
    end_ms: int
    make: Callable[[], Mono]
    seconds: float = 0.0
    """That decoding took."""

    @property
    def size(self) -> int:
        """Bytes of its samples."""
        return 4 * (_sample(self.end_ms) - _sample(self.start_ms))


def _sample(ms: int) -> int:
    return ms * RATE // 1000


def segments(path: Path, listen: Listen, faults: Faults, most_seconds: float = 6 * 3600.0) -> Iterator[Segment]:
    """Stretches of speech in order. Sound is decoded a window at a time. Raises `InvalidInputError`, and what
    `listen` raises."""
    held: list[Mono] = []
    length = first = 0  # samples held; the sample that they begin with
    window, began = WINDOW, perf_counter()
    with opened(path) as container:
        pieces = _pieces(container, faults, round(most_seconds * RATE))
        ended = False
        while not ended:
            while length < window:
                piece = next(pieces, None)
                if piece is None:
                    ended = True
                    break
                held.append(piece)
                length += piece.size
            pcm = np.concatenate(held) if held else np.zeros(0, np.float32)
            now, pcm = pcm[:window], pcm
            seconds = perf_counter() - began
            final = ended and pcm.size <= window
            found = listen(now) if now.size else []
            done = now.size
            if not final and found and found[-1][0] > 0 and 1000 * now.size // RATE - found[-1][1] < UNFINISHED_MS:
                done = _sample(found[-1][0])  # again, with what follows
                found = found[:-1]
            for start, end in found:
                yield _segment(first, start, end, now, seconds / len(found))
            held, length = [pcm[done:].copy()], pcm.size - done
            first += done
            ended = ended and not length
            began = perf_counter()


def _segment(first: int, start: int, end: int, window: Mono, seconds: float) -> Segment:
    begin = first * 1000 // RATE + start
    pcm = window[_sample(begin) - first : _sample(first * 1000 // RATE + end) - first].copy()
    return Segment(begin, first * 1000 // RATE + end, lambda: pcm, seconds)


def sound_of(path: Path | str, start_ms: int, end_ms: int) -> Mono:
    """The samples between two times: the same that warming has heard. Raises `InvalidInputError`."""
    begin, end = _sample(start_ms), _sample(end_ms)
    found: list[Mono] = []
    first = 0
    with opened(Path(path)) as container:
        for piece in _pieces(container, Faults(), end + RATE):
            if first + piece.size > begin:
                found.append(piece[max(0, begin - first) : end - first])
            first += piece.size
            if first >= end:
                break
    if not found:
        raise InvalidInputError(f"there is no sound at {start_ms} ms")
    return np.concatenate(found)


def _pieces(container: Any, faults: Faults, most: int) -> Iterator[Mono]:
    """Consecutive samples from the file's start, at most `most`."""
    import av

    if not container.streams.audio:
        return
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        faults.add("audio", 0, "it is of a codec that cannot be decoded here")
        return
    start, made, early, begun = origin(container), 0, 0, False
    resampler = _resampler()
    for frame in decoded(container, stream, faults):
        if frame.time is not None and frame.sample_rate:
            slip = round(RATE * (frame.time - start)) - made
            if not begun:
                begun, early = True, max(0, -slip)  # what a codec needs before its first sample
            if (LARGEST_SLIP if made else 0) < slip < LONGEST_SILENCE:
                for piece in _resampled(resampler, None):
                    made += piece.size
                    slip -= piece.size
                    yield piece
                resampler = _resampler()
                if made:
                    faults.add("audio", 1000 * made // RATE, f"{1000 * slip // RATE} ms are missing")
                silence = min(slip, most - made)
                while silence > 0:
                    yield np.zeros(min(silence, RATE), np.float32)
                    made += min(silence, RATE)
                    silence -= RATE
            elif made and slip < -LARGEST_SLIP - RATE * frame.samples // frame.sample_rate:
                faults.add("audio", 1000 * made // RATE, "samples that are there twice")
                continue
        try:
            pieces = _resampled(resampler, frame)
        except (av.FFmpegError, ValueError) as error:  # another rate or layout than before
            faults.add("audio", 1000 * made // RATE, f"the track changes: {type(error).__name__}")
            resampler = _resampler()
            pieces = _resampled(resampler, frame)
        for piece in pieces:
            if early:
                piece, early = piece[early:], max(0, early - piece.size)
            if made + piece.size >= most:
                yield piece[: most - made]
                return
            made += piece.size
            yield piece
    yield from _resampled(resampler, None)


def _resampler() -> Any:
    import av

    return av.AudioResampler(format="flt", layout="mono", rate=RATE)


def _resampled(resampler: Any, frame: Any) -> list[Mono]:
    found = [piece.to_ndarray().reshape(-1).astype(np.float32) for piece in resampler.resample(frame)]
    return [np.where(np.isfinite(piece), piece, np.float32(0)) for piece in found if piece.size]
