"""How likely is the stored answer wrong? A ranking from all outcomes so far; what it is worth is certified elsewhere.

First what is generally so at such a nearness of pictures and sounds and such a difference of words: a curve that falls
with the texts' similarity (`curve`). Where nothing is known of a difference, what is so at that nearness counts, shrunk
as by a Beta prior of one outcome. On this score each neighbourhood, which is a stored wording at one nearness of
pictures and sounds, with words that differ or without, learns its own threshold, and on that each pair of wordings
(`thresholds`): questions repeat over thousands of pictures, so "read the serial number" soon is refused where "what
animal is it" is not. Memory is bounded; what was not taught longest is forgotten.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from mmcache.calibration.curve import Curve
from mmcache.calibration.distance import NEARS, WORDS, group, nearness, text_bin
from mmcache.calibration.thresholds import Prior, predict, score, update
from mmcache.likeness.base import Likeness, WordDifference

SUSPENDED = 8
"""Right outcomes that a neighbourhood needs after a surprise; doubled with each further one."""
EXPECTED = 0.5
"""But no more than this ÷ its estimated P(wrong): where one in ten is wrong, one wrong is no surprise."""
MOST_STANDS_FOR = 20.0
CLASSES = 2
"""Of differences in words: none, or some. What comes of the one says nothing about the other."""
_PLACE = [bytes([place]) for place in range(NEARS * CLASSES)]


class Weight(NamedTuple):
    """What speaks for and against one request."""

    wrong: float
    """Estimated P(wrong)."""
    own: float
    """Right outcomes of this stored wording at this nearness since it last was wrong unexpectedly."""
    waiting: int
    """Right outcomes that its neighbourhood still owes after a surprise."""


class Record:
    """One neighbourhood, or one pair of wordings."""

    __slots__ = ("age", "owed", "right", "seen", "surprises", "weights")

    def __init__(self, age: int, weights: array[float]) -> None:
        self.age, self.weights = age, weights
        self.seen = self.right = 0.0
        self.owed = self.surprises = 0


class Evidence:
    """The ranking. `window`: outcomes that memory spans where it must not be longer, about 2 ÷ max_error."""

    def __init__(self, *, neighbourhoods: int, window: float) -> None:
        self._most, self._window = neighbourhoods, window
        self.nears = [[0.0, 0.0] for _ in range(NEARS)]
        """[right, wrong] by nearness."""
        self.curves: dict[int, Curve] = {}
        """By group."""
        self.records: dict[bytes, Record] = {}
        """By stored wording and place (17 bytes) and by pair (33), least lately taught first."""
        self.priors = tuple(Prior() for _ in range(2 * CLASSES))
        """Of neighbourhoods and of pairs whose words do not differ; of those whose words do."""
        self.age = 0

    def weigh(self, likeness: Likeness) -> Weight:
        """What speaks for and against serving `likeness`, which must be comparable. Changes nothing."""
        near = nearness(likeness)
        curve = self.curves.get(group(likeness, near))
        wrong = curve.values[text_bin(likeness)] if curve is not None else self._usual(near)
        differs = likeness.words is not WordDifference.NONE
        place, name = score(wrong), likeness.stored + _PLACE[near + NEARS * differs]
        record = self.records.get(name)
        if record is None:
            return Weight(self.priors[2 * differs].predict(place), 0.0, 0)
        wrong = predict(self._believed(record, 2 * differs), place)
        if (pair := self.records.get(likeness.asked + name)) is not None:
            wrong = predict(self._believed(pair, 2 * differs + 1), score(wrong))
        return Weight(wrong, record.right if record.age == self.age else 0.0, record.owed)

    def learn(self, likeness: Likeness, right: bool, surprise: bool, stands_for: float = 1.0) -> None:
        """Take an outcome. `surprise`: it was wrong where it would have been, or was, served.

        `stands_for`: of how many like it that were served it is the one that was checked. Without that weight what is
        generally so would be judged by what is not served, and look worse the more is.
        """
        stands_for = min(stands_for, MOST_STANDS_FOR)
        near = nearness(likeness)
        kind, place = group(likeness, near), text_bin(likeness)
        curve = self.curves.get(kind)
        if curve is None:
            self.curves[kind] = curve = Curve()
            curve.fit(self._usual(near))
        wrong = curve.values[place]
        usual = self.nears[near]
        usual[not right] += stands_for
        if usual[0] + usual[1] > 20 * self._window:
            usual[0], usual[1] = usual[0] / 2, usual[1] / 2
        curve.add(place, right, stands_for, 20 * self._window)
        curve.fit(self._usual(near))
        differs = likeness.words is not WordDifference.NONE
        name = likeness.stored + _PLACE[near + NEARS * differs]
        record, wrong = self._teach(name, 2 * differs, wrong, right, stands_for)
        _, wrong = self._teach(likeness.asked + name, 2 * differs + 1, wrong, right, stands_for)
        if right:
            record.right = min(record.right + 1, self._window)
            record.owed = max(record.owed - 1, 0)
            if record.right >= self._window:
                record.surprises = 0
        elif surprise:
            record.right = 0.0
            record.owed = int(min(SUSPENDED << min(record.surprises, 10), EXPECTED / wrong, self._window))
            record.surprises += 1
        elif record.owed:
            record.owed += 1
        while len(self.records) > self._most:
            del self.records[next(iter(self.records))]

    def grow_old(self, kept: float = 0.25) -> None:
        """The world has changed: keep this share of all counts, and believe what is usual rather than what was."""
        self.age += 1
        for usual in self.nears:
            usual[0], usual[1] = usual[0] * kept, usual[1] * kept
        for kind, curve in self.curves.items():
            curve.fade(kept)
            curve.fit(self._usual(kind // WORDS))

    def _usual(self, near: int) -> float:
        right, wrong = self.nears[near]
        return (wrong + 0.5) / (right + wrong + 1.0)

    def _teach(self, name: bytes, kind: int, wrong: float, right: bool, stands_for: float) -> tuple[Record, float]:
        """One record's outcome at a score; the record, and the estimate it would have given."""
        prior, place = self.priors[kind], score(wrong)
        record = self.records.pop(name, None)
        if record is None:
            record = Record(self.age, prior.weights)
        elif record.age != self.age:
            self._freshen(record, kind)
        self.records[name] = record
        estimate = predict(record.weights, place)
        record.weights = update(record.weights, prior, place, right)
        prior.follow(record.weights, record.seen, stands_for)
        record.seen = min(record.seen + 1, self._window)
        return record, estimate

    def _believed(self, record: Record, kind: int) -> array[float]:
        """Its posterior; after the world changed a tenth of it, and what is usual."""
        if record.age == self.age:
            return record.weights
        usual = self.priors[kind].weights
        return array("d", [0.1 * old + 0.9 * new for old, new in zip(record.weights, usual, strict=True)])

    def _freshen(self, record: Record, kind: int) -> None:
        """After the world changed, begin to count anew."""
        record.weights = self._believed(record, kind)
        record.right, record.seen, record.age = 0.0, record.seen / 4, self.age
