"""P(wrong) by similarity, for all that differ in the same way: counts in bins, and the monotone curve through them.

The nearer the texts, the seldomer wrong: so a bin of few outcomes borrows from its neighbours by isotonic regression
(pool adjacent violators: Ayer et al., Annals of Mathematical Statistics 1955), with a faint prior in each bin.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.calibration.distance import BINS


class Curve:
    """One group's. `values[bin]`: P(wrong)."""

    __slots__ = ("right", "values", "wrong")

    def __init__(self, right: Sequence[float] = (0.0,) * BINS, wrong: Sequence[float] = (0.0,) * BINS) -> None:
        self.right, self.wrong = list(right), list(wrong)
        self.values = [0.5] * BINS

    def add(self, place: int, right: bool, stands_for: float, most: float) -> None:
        """Count an outcome; a bin of more than `most` is halved."""
        (self.right if right else self.wrong)[place] += stands_for
        if self.right[place] + self.wrong[place] > most:
            self.right[place] /= 2
            self.wrong[place] /= 2

    def fade(self, kept: float) -> None:
        """Keep this share of all counts."""
        self.right = [kept * count for count in self.right]
        self.wrong = [kept * count for count in self.wrong]

    def fit(self, parents: Sequence[float], faint: float) -> None:
        """Find the curve anew. `parents`: P(wrong) in each bin where nothing is known, counted as `faint` outcomes."""
        blocks: list[tuple[float, float, int]] = []
        for right, wrong, parent in zip(self.right, self.wrong, parents, strict=True):
            bad, seen, width = wrong + faint * parent, right + wrong + faint, 1
            while blocks and bad * blocks[-1][1] > blocks[-1][0] * seen:
                before = blocks.pop()
                bad, seen, width = bad + before[0], seen + before[1], width + before[2]
            blocks.append((bad, seen, width))
        self.values = [bad / seen for bad, seen, width in blocks for _ in range(width)]
