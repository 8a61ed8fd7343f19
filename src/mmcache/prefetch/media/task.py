"""What there is to warm in a video: tasks, and what went wrong on the way to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["frame", "ocr", "asr"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_FAULTS = 100
"""Faults that are told one by one; beyond, they are counted."""

Box = tuple[int, int, int, int]
"""x, y, width, height in pixels of the upright frame."""


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work: a whole frame, a region of one, or a stretch of speech."""

    kind: Kind
    frame_ts: int | None = None
    """Milliseconds from the file's start; of a frame or region."""
    roi_bbox: Box | None = None
    """Of a region; None in a task of kind `ocr`: find the regions first."""
    asr_offset: float | None = None
    """Seconds from the file's start; of a stretch of speech."""
    asr_end: float | None = None
    """Seconds."""

    @property
    def at_ms(self) -> int:
        """Where in the file it lies."""
        return self.frame_ts if self.frame_ts is not None else round(1000 * (self.asr_offset or 0.0))


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a file that could not be read, or that a model failed at."""

    where: str
    """`container`, `video`, `audio`, `journal`, or what failed: `frame`, `find`, `read`, `listen`, `hear`, `text`."""
    at_ms: int
    what: str


@dataclass(slots=True)
class Faults:
    """A bounded list of them."""

    first: list[Fault] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, at_ms: int, what: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.first) < MOST_FAULTS:
            self.first.append(Fault(where, at_ms, what[:200]))

    def take(self, others: Sequence[Fault], count: int) -> None:
        """Note what somebody else has noted."""
        self.first += others[: max(0, MOST_FAULTS - len(self.first))]
        self.count += count
