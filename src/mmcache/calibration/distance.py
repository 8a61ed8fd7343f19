"""The parts of a likeness that evidence is sorted by: how near, which words differ, how far the texts are apart."""

from __future__ import annotations

from bisect import bisect_right

from mmcache.likeness.base import Likeness, Nearness

FINE = 1.25
"""Bins of 1 − cosine are in a constant ratio: embedders differ in how far apart they put what is unlike."""
EDGES = tuple(1 - 0.8 / FINE**step for step in range(30))
"""Cosines that part the bins, from 0.2 to 0.9988."""
SAME_WORDS = len(EDGES) + 1
BINS = SAME_WORDS + 1
NEARS = 9
WORDS = 64


def comparable(likeness: Likeness) -> bool:
    """Whether all parts are near enough to be ranked at all."""
    return likeness.picture < Nearness.UNLIKE and likeness.sound < Nearness.UNLIKE and -1.001 <= likeness.text <= 1.001


def nearness(likeness: Likeness) -> int:
    """Of pictures and sounds, 0 (all the same) to 8."""
    return 3 * likeness.picture + likeness.sound


def group(likeness: Likeness, near: int) -> int:
    """Those that are as near and differ in the same kinds of words."""
    return near * WORDS + likeness.words.value


def text_bin(likeness: Likeness) -> int:
    """0 (far apart) to `BINS` − 1 (the same words)."""
    return SAME_WORDS if likeness.asked == likeness.stored else bisect_right(EDGES, likeness.text)
