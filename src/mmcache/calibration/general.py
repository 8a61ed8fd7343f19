"""What is generally so: P(wrong) at such a nearness of pictures and sounds, difference of words, and similarity.

Three layers, each of which is the prior of the next: a rate at each nearness, with words that differ or without; where
words differ, one curve for all such differences; one curve for each kind of difference. What differs in a way that was
seldom seen is thus judged by what is so of differences, and not by luck with the first few.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.calibration.curve import Curve
from mmcache.calibration.distance import BINS, NEARS, WORDS

CLASSES = 2
"""Of differences in words: none, or some. What comes of the one says nothing about the other."""
TRUSTED = 3e-4
"""P(wrong) where no words differ and nothing is known: what the gate on words is for. One wrong outcome ends this."""
FAINT = 0.05
"""Outcomes that the prior counts for in each bin of similarity where no words differ;"""
FAINT_DIFFERENT = 0.25
"""where some do, of all kinds; and"""
FAINT_KIND = 2.0
"""of one kind, whose prior is that curve."""


def classed(near: int, kind: int) -> int:
    """Of nearness and class, 0 to `NEARS` · `CLASSES` − 1."""
    return near + NEARS * (kind % WORDS > 0)


class General:
    """Counts, and the curves through them. `window`: see `Evidence`."""

    def __init__(self, window: float) -> None:
        self._most = 20 * window
        self.usual = [[0.0, 0.0] for _ in range(NEARS * CLASSES)]
        """[right, wrong] by nearness and class."""
        self.mixed: dict[int, Curve] = {}
        """By nearness, of all whose words differ."""
        self.curves: dict[int, Curve] = {}
        """By group: nearness and kind of difference."""

    def wrong(self, near: int, kind: int, place: int) -> float:
        """P(wrong) of group `kind` in the bin `place`."""
        curve = self.curves.get(kind)
        if curve is None and kind % WORDS:
            curve = self.mixed.get(near)
        return self._rate(near, kind) if curve is None else curve.values[place]

    def learn(self, near: int, kind: int, place: int, right: bool, stands_for: float) -> float:
        """Take an outcome that stands for so many; what `wrong` was before."""
        before = self.wrong(near, kind, place)
        usual = self.usual[classed(near, kind)]
        usual[not right] += stands_for
        if usual[0] + usual[1] > self._most:
            usual[0], usual[1] = usual[0] / 2, usual[1] / 2
        if kind % WORDS:
            mixed = self.mixed.setdefault(near, Curve())
            mixed.add(place, right, stands_for, self._most)
            mixed.fit(self._flat(near, kind), FAINT_DIFFERENT)
        curve = self.curves.setdefault(kind, Curve())
        curve.add(place, right, stands_for, self._most)
        self._fit(curve, near, kind)
        return before

    def fade(self, kept: float) -> None:
        """Keep this share of all counts."""
        for usual in self.usual:
            usual[0], usual[1] = usual[0] * kept, usual[1] * kept
        for near, mixed in self.mixed.items():
            mixed.fade(kept)
            mixed.fit(self._flat(near, near * WORDS + 1), FAINT_DIFFERENT)
        for kind, curve in self.curves.items():
            curve.fade(kept)
            self._fit(curve, kind // WORDS, kind)

    def _fit(self, curve: Curve, near: int, kind: int) -> None:
        if kind % WORDS:
            curve.fit(self.mixed[near].values, FAINT_KIND)
        else:
            curve.fit(self._flat(near, kind), FAINT)

    def _flat(self, near: int, kind: int) -> Sequence[float]:
        return (self._rate(near, kind),) * BINS

    def _rate(self, near: int, kind: int) -> float:
        right, wrong = self.usual[classed(near, kind)]
        return (wrong + (0.5 if kind else TRUSTED)) / (right + wrong + 1.0)
