"""`Scenes`: which frames of a video are worth a model's time. Pure: it sees small grey pictures and times.

A frame is kept where the picture has changed since the last one that was kept, and has come to rest: of a cross-fade
the picture after it, not one from its middle, while the scene's start is where the change began. A picture that is
shown long enough is at rest, however few frames it has, so variable frame rates need no special case. One that never
comes to rest (a moving camera) is kept every `most_unsettled_ms`; one that never changes, every `longest_gap_ms`.

Change is the share of cells that differ by more than some grey levels. It is compared with the last *kept* frame, as
slow changes would otherwise never add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import SettingsError

T = TypeVar("T")
Grey = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 96, 54
"""Cells that a frame is averaged to."""


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """When a picture has changed, and when it is at rest."""

    changed_share: float = 0.004
    """Share of the cells (0…1) that must differ; a short line of a slide covers 1 %."""
    changed_level: int = 16
    """Grey levels by which a cell differs from the kept frame's."""
    moving_level: int = 6
    """Grey levels by which a cell differs from the frame before: above, the picture has not come to rest."""
    settled_ms: int = 120
    """A picture that is shown for so long is at rest."""
    most_unsettled_ms: int = 2_000
    longest_gap_ms: int = 30_000

    def __post_init__(self) -> None:
        if not 0 < self.changed_share < 1 or not 0 < self.moving_level <= self.changed_level < 256:
            raise SettingsError("changed_share is between 0 and 1, and 0 < moving_level <= changed_level < 256")
        if min(self.settled_ms, self.most_unsettled_ms, self.longest_gap_ms) < 1:
            raise SettingsError("settled_ms, most_unsettled_ms and longest_gap_ms are at least 1")


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A frame to be looked at."""

    start_ms: int
    """Where the picture began to be another than before."""
    frame_ms: int
    frame: T


@dataclass(frozen=True, slots=True)
class _Pending(Generic[T]):
    start_ms: int
    frame_ms: int
    grey: Grey
    frame: T


class Scenes(Generic[T]):
    """Feed it every frame, in order of time."""

    def __init__(self, options: SceneOptions = SceneOptions()) -> None:
        self._options = options
        self._kept: Grey | None = None
        self._kept_ms = 0
        self._pending: _Pending[T] | None = None

    def look(self, ms: int, grey: Grey, frame: T) -> Iterator[Kept[T]]:
        """Those that are worth keeping, known now. grey: [HEIGHT, WIDTH]. `ms` never falls."""
        pending, options = self._pending, self._options
        if pending is not None:
            at_rest = (
                _change(pending.grey, grey, options.moving_level) <= options.changed_share
                or ms - pending.frame_ms >= options.settled_ms
                or ms - pending.start_ms >= options.most_unsettled_ms
            )
            if at_rest:
                yield self._keep(pending)
            elif self._differs(grey):
                self._pending = _Pending(pending.start_ms, ms, grey, frame)
                return
            else:  # it flashed
                self._pending = None
        if self._differs(grey):
            self._pending = _Pending(ms, ms, grey, frame)
        elif ms - self._kept_ms >= options.longest_gap_ms:
            yield self._keep(_Pending(ms, ms, grey, frame))

    def end(self) -> Iterator[Kept[T]]:
        """The last one, where the video ended before it came to rest."""
        if self._pending is not None:
            yield self._keep(self._pending)

    def _differs(self, grey: Grey) -> bool:
        options = self._options
        return self._kept is None or _change(self._kept, grey, options.changed_level) > options.changed_share

    def _keep(self, pending: _Pending[T]) -> Kept[T]:
        self._pending, self._kept, self._kept_ms = None, pending.grey, pending.frame_ms
        return Kept(pending.start_ms, pending.frame_ms, pending.frame)


def _change(one: Grey, other: Grey, level: int) -> float:
    """Share of the cells that differ by more than `level`."""
    return float(np.mean(np.abs(one.astype(np.int16) - other) > level))
