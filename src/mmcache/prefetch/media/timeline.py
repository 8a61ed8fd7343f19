"""`Timeline`: what was seen, read and heard in a video, and when. Times in milliseconds from the file's start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.task import Box, Fault

VERSION = 1


class Scene(msgspec.Struct, frozen=True):
    """A picture that stays."""

    start_ms: int
    end_ms: int
    """Where the next begins, or the video ends."""
    frame_ms: int
    """Of the frame that stands for it."""


class ReadRegion(msgspec.Struct, frozen=True):
    """Print in a frame."""

    start_ms: int
    """Of its scene."""
    end_ms: int
    frame_ms: int
    bbox: Box
    """x, y, width, height in pixels of the upright frame."""
    text: str
    score: float
    """The reader's confidence, 0…1; 1 where it gave none."""


class Speech(msgspec.Struct, frozen=True):
    """A stretch of speech."""

    start_ms: int
    end_ms: int
    text: str


class Moment(msgspec.Struct, frozen=True):
    """What there is at one time."""

    scene: Scene | None
    regions: tuple[ReadRegion, ...]
    speech: Speech | None


class Timeline(msgspec.Struct, frozen=True):
    """One video's. JSON by `to_json`, back by `from_json`."""

    duration_ms: int
    width: int
    """Pixels of the upright frame; 0 without video."""
    height: int
    rotation: int
    """Degrees that the file says its frames are to be turned by, counter-clockwise."""
    complete: bool
    """False where a budget ended it."""
    scenes: tuple[Scene, ...] = ()
    regions: tuple[ReadRegion, ...] = ()
    speech: tuple[Speech, ...] = ()
    faults: tuple[Fault, ...] = ()
    """The first of what could not be read."""
    fault_count: int = 0
    version: int = VERSION

    def at(self, ms: int) -> Moment:
        """The scene, what is to be read in it, and what is said at `ms`."""
        scene = next((one for one in reversed(self.scenes) if one.start_ms <= ms), None)
        frame = None if scene is None else scene.frame_ms
        regions = tuple(one for one in self.regions if one.frame_ms == frame)
        return Moment(scene, regions, next((one for one in self.speech if one.start_ms <= ms < one.end_ms), None))

    def to_json(self) -> bytes:
        """UTF-8, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @staticmethod
    def from_json(data: bytes) -> Timeline:
        """Raises `InvalidInputError`."""
        try:
            found = msgspec.json.decode(data, type=Timeline)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"this is no timeline: {error}") from error
        if found.version != VERSION:
            raise InvalidInputError(f"a timeline of version {found.version}; this mmcache reads version {VERSION}")
        return found

    def write(self, path: Path) -> None:
        """Into a file, whole or not at all. Raises `OSError`."""
        draft = path.with_name(f".{path.name}.part")
        draft.write_bytes(self.to_json() + b"\n")
        draft.replace(path)

    def as_dict(self) -> dict[str, Any]:
        """For `json.dumps`."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found
