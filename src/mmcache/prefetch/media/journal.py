"""`Journal`: how far warming a file has come, so that it can go on after anything, `kill -9` included.

One append-only file of JSON lines in the cache folder. Its name is a key made from the file's content and the models'
signatures, in the realm of the cache; its lines hold places (times, boxes) and keys of blocks, never what was seen,
read or heard. A line that was cut off by the end of the process ends it. A block that a line names and the cache has no
longer is computed anew, so a journal is never trusted further than the cache goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmcache.model.errors import InvalidInputError
from mmcache.model.key import PART_BYTES, Key
from mmcache.prefetch.media.task import Box, Fault, Task

FOLDER = "warm"
MOST_FILES = 1_000
"""Journals that a cache folder keeps; the least recently used go first."""
MOST_BYTES = 64 << 20
"""Of one journal that is read."""


@dataclass(slots=True)
class Noted:
    """What a journal holds."""

    scenes: list[tuple[int, int]] = field(default_factory=list)
    """(start, frame) in ms, in order."""
    speech: list[tuple[int, int]] = field(default_factory=list)
    """(start, end) in ms, in order."""
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`video`, `audio` → what was noted when all of it had been read."""
    done: dict[Task, tuple[Key, ...]] = field(default_factory=dict)
    """Tasks → keys of the blocks that they made, in order."""
    lines: int = 0


class Journal:
    """Of one file with one set of models. Without a folder it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: Any = None
        self.lost = ""
        """Why it could not be kept; empty where it could. Warming goes on without it."""

    @staticmethod
    def under(root: Path | None, name: bytes) -> Journal:
        """In the cache folder `root`, for what `name` identifies."""
        if root is None:
            return Journal(None)
        folder = root / FOLDER
        with suppress(OSError):  # told by `begin`
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _thin(folder)
        return Journal(folder / f"{name.hex()}.jsonl")

    def read(self) -> Noted:
        """What was noted before, as far as it is whole."""
        noted = Noted()
        for line in self._lines():
            try:
                _take(json.loads(line), noted)
            except (ValueError, TypeError, KeyError, IndexError, InvalidInputError):
                break
            noted.lines += 1
        return noted

    def begin(self, fresh: bool) -> None:
        """Open it for notes. fresh: forget what was noted before."""
        if self._path is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        try:
            if not fresh:
                self._mend()
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "ab", buffering=0)
        except OSError as error:
            self.lost = error.strerror or type(error).__name__

    def scene(self, start_ms: int, frame_ms: int) -> None:
        """A frame is worth keeping."""
        self._note({"scene": [start_ms, frame_ms]})

    def spoken(self, start_ms: int, end_ms: int) -> None:
        """Somebody speaks."""
        self._note({"speech": [start_ms, end_ms]})

    def ended(self, stream: str, facts: dict[str, Any]) -> None:
        """All of `video` or `audio` has been read."""
        self._note({"ended": stream, "facts": facts})

    def unheard(self) -> None:
        """The sound was not listened to everywhere: what was noted of speech may lie otherwise next time."""
        self._note({"unheard": True})

    def done(self, task: Task, keys: list[Key]) -> None:
        """A task is done, and these blocks hold what came of it."""
        place = {name: value for name, value in asdict(task).items() if value is not None}
        self._note({"done": place, "keys": [bytes(key).hex() for key in keys]})

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note(self, what: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(what, separators=(",", ":")).encode() + b"\n")
        except OSError as error:  # a full disk: what is not noted is done again
            self.lost = error.strerror or type(error).__name__
            self.close()

    def _lines(self) -> Iterator[bytes]:
        if self._path is None or not self._path.is_file() or self._path.stat().st_size > MOST_BYTES:
            return
        with suppress(OSError):  # it belongs to somebody else, or the folder is read-only
            os.utime(self._path)
        for line in self._path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            yield line

    def _mend(self) -> None:
        """Cut off what `read` did not understand, so that what is appended is read next time."""
        if self._path is None or not self._path.is_file():
            return
        lines = [line for _, line in zip(range(self.read().lines), self._lines(), strict=False)]
        whole = sum(map(len, lines))
        if whole != self._path.stat().st_size:
            os.truncate(self._path, whole)


def _take(line: dict[str, Any], noted: Noted) -> None:
    if "scene" in line:
        start, frame = map(int, line["scene"])
        noted.scenes.append((start, frame))
    elif "speech" in line:
        start, end = map(int, line["speech"])
        noted.speech.append((start, end))
    elif "unheard" in line:
        noted.speech.clear()
    elif "ended" in line:
        noted.ended[str(line["ended"])] = dict(line["facts"])
    else:
        keys = [bytes.fromhex(key) for key in line["keys"]]
        if any(len(key) != 3 * PART_BYTES for key in keys):
            raise ValueError("a key is cut off")
        noted.done[_task(line["done"])] = tuple(map(Key.from_bytes, keys))


def _task(place: dict[str, Any]) -> Task:
    box = place.get("roi_bbox")
    region: Box | None = None
    if box is not None:
        x, y, width, height = map(int, box)
        region = x, y, width, height
    return Task(place["kind"], place.get("frame_ts"), region, place.get("asr_offset"), place.get("asr_end"))


def faults_of(facts: dict[str, Any]) -> list[Fault]:
    """As `ended` noted them."""
    return [Fault(str(where), int(at), str(what)) for where, at, what in facts.get("faults", ())]


def _thin(folder: Path) -> None:
    files = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    if len(files) > MOST_FILES:
        for old in sorted(files, key=lambda path: path.stat().st_mtime)[: len(files) - MOST_FILES]:
            old.unlink(missing_ok=True)
