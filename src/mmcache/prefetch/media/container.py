"""A media file, opened so that it can do no harm: from one file object, no other file or address, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmcache.keys import containers
from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.task import Faults

MOST_PIXELS = 89_478_485
"""Largest width × height of a frame, as `ContentOptions` has it."""
MOST_BROKEN = 10_000
"""Packets that cannot be read, after which the rest of a file is left alone."""
LEAST_MISSING_MS = 1_000
"""By which a file must end before it says it does, to be called cut off."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file says of itself."""

    duration_ms: int
    """0 where it does not say."""
    has_video: bool
    has_audio: bool


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An `av` container. Raises `InvalidInputError` where it cannot be opened or PyAV is missing."""
    try:
        import av
    except ImportError as error:
        raise InvalidInputError("video files need PyAV: pip install 'mmcache[warm]'") from error
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"cannot read the video file {path}: {error}") from error
    with file:
        if not file.peek(1):
            raise InvalidInputError(f"{path.name} is empty")
        try:
            container = containers.opened(file, MOST_PIXELS)
        except av.ArgumentError as error:
            raise InvalidInputError(
                f"{path.name} cannot be opened as a video: it is of no format that is read here (nor are playlists)"
            ) from error
        except (av.FFmpegError, ValueError, EOFError, OSError) as error:
            raise InvalidInputError(f"{path.name} cannot be opened as a video: {_said(error)}") from error
        try:
            yield container
        finally:
            container.close()


def facts(path: Path) -> Facts:
    """Raises `InvalidInputError`."""
    with opened(path) as container:
        return Facts(
            round((container.duration or 0) / 1000), bool(container.streams.video), bool(container.streams.audio)
        )


def origin(container: Any) -> float:
    """Seconds that its timestamps begin at: what all times are counted from."""
    return (container.start_time or 0) / 1_000_000


def decoded(container: Any, stream: Any, faults: Faults) -> Iterator[Any]:
    """Frames of `stream`, as far as they can be decoded; what cannot is noted, and the rest goes on."""
    import av

    broken, at_ms, end_ms, start = 0, 0, 0.0, origin(container)
    told = [other for other in container.streams if other.type in ("video", "audio")]  # to see where the file ends
    packets = container.demux(told)
    while broken < MOST_BROKEN:
        try:
            packet = next(packets)
        except StopIteration:
            says = (container.duration or 0) / 1000
            if end_ms + LEAST_MISSING_MS < says:
                faults.add("container", round(end_ms), f"it ends here, and says that it lasts {says / 1000:.1f} s")
            return
        except (av.FFmpegError, EOFError, OSError, ValueError) as error:
            broken += 1
            faults.add(stream.type, at_ms, f"a packet cannot be read: {_said(error)}")
            packets = container.demux(told)  # it goes on where it was
            continue
        if packet.pts is not None and packet.time_base is not None:
            end_ms = max(end_ms, 1000 * (float((packet.pts + (packet.duration or 0)) * packet.time_base) - start))
        if packet.stream_index != stream.index:
            continue
        if packet.pts is not None and packet.time_base is not None:
            at_ms = max(0, round(1000 * (float(packet.pts * packet.time_base) - start)))
        try:
            frames = packet.decode()
        except (av.FFmpegError, EOFError, OSError, ValueError) as error:
            broken += 1
            faults.add(stream.type, at_ms, f"a packet cannot be decoded: {_said(error)}")
            continue
        yield from frames
    faults.add(stream.type, at_ms, f"more than {MOST_BROKEN} packets are broken; the rest is left alone")


def _said(error: Exception) -> str:
    """FFmpeg's own words, without the file's name."""
    return str(getattr(error, "strerror", None) or type(error).__name__)
