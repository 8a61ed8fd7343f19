"""The parts of a likeness that evidence is sorted by: how near, which words differ, how far the texts are apart."""

from __future__ import annotations

from bisect import bisect_right

from mmcache.likeness.base import Likeness, Nearness

EDGES = (0.45, 0.55, 0.62, 0.68, 0.73, 0.77, 0.8, 0.83, 0.86, 0.885, 0.91, 0.93, 0.95, 0.97, 0.985)
"""Cosines that part the bins."""
SAME_WORDS = len(EDGES) + 1
BINS = SAME_WORDS + 1
NEARS = 9
WORDS = 64
LARGEST = 4 * NEARS * WORDS * BINS
"""Above every cell's number."""


def comparable(likeness: Likeness) -> bool:
    """Whether all parts are near enough to be ranked at all."""
    return likeness.picture < Nearness.UNLIKE and likeness.sound < Nearness.UNLIKE and -1.001 <= likeness.text <= 1.001


def nearness(likeness: Likeness) -> int:
    """Of pictures and sounds, 0 (all the same) to 8."""
    return 3 * likeness.picture + likeness.sound


def cells(likeness: Likeness, near: int) -> tuple[int, int, int, int]:
    """What this request is one of, from the coarsest to the finest; all numbers differ between the four."""
    words = near * WORDS + likeness.words.value
    text = SAME_WORDS if likeness.asked == likeness.stored else bisect_right(EDGES, likeness.text)
    coarse = words * BINS + (SAME_WORDS if text == SAME_WORDS else text // 3)
    return near << 2, words << 2 | 1, coarse << 2 | 2, (words * BINS + text) << 2 | 3
