"""How well a timeline fits the talk that it was made of: times in ms, print, words. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from mmcache.lab.talks import Printed, Said, Talk
from mmcache.prefetch.media.task import Box
from mmcache.prefetch.media.timeline import ReadRegion, Speech, Timeline

NEAR_MS = 500
"""A scene further away from a change is another one."""
LEAST_OVERLAP = 0.5


@dataclass
class Score:
    """Sums over talks; errors are absolute, in ms."""

    scene_ms: list[float] = field(default_factory=list)
    changes: int = 0
    scenes: int = 0
    line_ms: list[float] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    lines: int = 0
    exact: int = 0
    exact_but_spaces: int = 0
    start_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    sentences: int = 0
    segments: int = 0
    words: int = 0
    wrong_words: int = 0
    frames: int = 0
    kept: int = 0

    def add(self, talk: Talk, line: Timeline, until_ms: float = float("inf")) -> None:
        """One talk, as far as `until_ms`."""
        self._scenes([ms for ms in talk.changes if ms < until_ms], [scene.start_ms for scene in line.scenes])
        self._print([one for one in talk.printed if one.from_ms < until_ms], line.regions)
        self._speech([one for one in talk.said if one.until_ms < until_ms], line.speech)

    def _scenes(self, changes: Sequence[int], starts: Sequence[int]) -> None:
        self.changes += len(changes)
        self.scenes += len(starts)
        for change in changes:
            nearest = min((abs(start - change) for start in starts), default=NEAR_MS + 1)
            if nearest <= NEAR_MS:
                self.scene_ms.append(nearest)

    def _print(self, printed: Sequence[Printed], regions: Sequence[ReadRegion]) -> None:
        for one in printed:
            self.lines += 1
            there = [r for r in regions if one.from_ms - NEAR_MS <= r.start_ms < one.until_ms]
            fits = [r for r in there if overlap(r.bbox, one.box) >= LEAST_OVERLAP]
            if not fits:
                continue
            first = min(fits, key=lambda region: region.start_ms)
            self.line_ms.append(abs(first.start_ms - one.from_ms))
            self.overlap.append(overlap(first.bbox, one.box))
            self.exact += first.text == one.text
            self.exact_but_spaces += first.text.replace(" ", "") == one.text.replace(" ", "")

    def _speech(self, said: Sequence[Said], segments: Sequence[Speech]) -> None:
        self.sentences += len(said)
        self.segments += len(segments)
        for one in said:
            over = [s for s in segments if s.start_ms < one.until_ms and s.end_ms > one.from_ms]
            self.words += len(plain(one.text))
            self.wrong_words += distance(plain(one.text), plain(" ".join(s.text for s in over)))
            if over:
                self.start_ms.append(abs(over[0].start_ms - one.from_ms))
                self.end_ms.append(abs(over[-1].end_ms - one.until_ms))


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes (x, y, width, height)."""
    x, y = max(one[0], other[0]), max(one[1], other[1])
    right = min(one[0] + one[2], other[0] + other[2])
    lower = min(one[1] + one[3], other[1] + other[3])
    shared = max(0, right - x) * max(0, lower - y)
    whole = one[2] * one[3] + other[2] * other[3] - shared
    return shared / whole if whole else 0.0


def plain(text: str) -> list[str]:
    """Words in small letters, hyphens as spaces, without other marks."""
    kept = "".join(c if c.isalnum() or c.isspace() or c == "'" else " " if c == "-" else "" for c in text.lower())
    return kept.split()


def distance(wanted: Sequence[Hashable], found: Sequence[Hashable]) -> int:
    """Edits that make one of the other (Levenshtein, 1966)."""
    row = list(range(len(found) + 1))
    for i, one in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(found, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]
