"""How likely is the stored answer wrong? A ranking from all outcomes so far; what it is worth is certified elsewhere.

First what is generally so: estimates back off from the special to the general, each shrunk towards the one before it as
by a Beta prior, m ← (wrong + s·m) ÷ (seen + s), over: how near pictures and sounds are; the words' difference with it;
with it the text's similarity, coarse and fine. The strengths s are learned: of a few, the one that would have predicted
outcomes best (prequential: Dawid 1984). On this score each neighbourhood, which is a stored wording at one nearness of
pictures and sounds, learns its own threshold, and on that each pair of wordings (`thresholds`): questions repeat over
thousands of pictures, so "read the serial number" soon is refused where "what animal is it" is not. Memory is bounded;
what was not taught longest is forgotten.
"""

from __future__ import annotations

from array import array
from math import log
from typing import NamedTuple

from mmcache.calibration.distance import cells, nearness
from mmcache.calibration.thresholds import Prior, predict, score, update
from mmcache.likeness.base import Likeness

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FIRST_STRENGTH = 2
GENERAL = 4
"""Parts of a likeness that are counted, coarse to fine."""
FORGET_LOSS = 0.999
SUSPENDED = 8
"""Right outcomes that a neighbourhood needs after a surprise; doubled with each further one."""
EXPECTED = 0.5
"""But no more than this ÷ its estimated P(wrong): where one in ten is wrong, one wrong is no surprise."""
MOST_STANDS_FOR = 20.0
_NEAR = [bytes([near]) for near in range(9)]


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
        self.general: dict[int, list[float]] = {}
        """[right, wrong] by cell."""
        self.records: dict[bytes, Record] = {}
        """By stored wording and nearness (17 bytes) and by pair (33), least lately taught first."""
        self.priors = (Prior(), Prior())
        """Of neighbourhoods, of pairs."""
        self.losses = [[0.0] * len(STRENGTHS) for _ in range(GENERAL)]
        self.strengths = [STRENGTHS[FIRST_STRENGTH]] * GENERAL
        self.age = self.turn = 0

    def weigh(self, likeness: Likeness) -> Weight:
        """What speaks for and against serving `likeness`, which must be comparable."""
        near = nearness(likeness)
        wrong = 0.5
        general = self.general
        for strength, key in zip(self.strengths, cells(likeness, near), strict=True):
            if (cell := general.get(key)) is None:
                break
            wrong = (cell[1] + strength * wrong) / (cell[0] + cell[1] + strength)
        place, name = score(wrong), likeness.stored + _NEAR[near]
        record = self.records.get(name)
        if record is None:
            return Weight(self.priors[0].predict(place), 0.0, 0)
        if record.age != self.age:
            self._freshen(record, 0)
        wrong = predict(record.weights, place)
        if (pair := self.records.get(likeness.asked + name)) is not None:
            if pair.age != self.age:
                self._freshen(pair, 1)
            wrong = predict(pair.weights, score(wrong))
        return Weight(wrong, record.right, record.owed)

    def learn(self, likeness: Likeness, right: bool, surprise: bool, stands_for: float = 1.0) -> None:
        """Take an outcome. `surprise`: it was wrong where it would have been, or was, served.

        `stands_for`: of how many like it that were served it is the one that was checked. Without that weight what is
        generally so would be judged by what is not served, and look worse the more is.
        """
        stands_for = min(stands_for, MOST_STANDS_FOR)
        near, self.turn = nearness(likeness), (self.turn + 1) % GENERAL
        wrong = 0.5
        for level, key in enumerate(cells(likeness, near)):
            cell = self.general.get(key)
            if cell is None:
                self.general[key] = cell = [0.0, 0.0]
            else:
                wrong = self._judge(level, cell[0], cell[1], wrong, right)
            cell[not right] += stands_for
            if cell[0] + cell[1] > 20 * self._window:
                cell[0], cell[1] = cell[0] / 2, cell[1] / 2
        name = likeness.stored + _NEAR[near]
        record, wrong = self._teach(name, 0, wrong, right, stands_for)
        _, wrong = self._teach(likeness.asked + name, 1, wrong, right, stands_for)
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
        for cell in self.general.values():
            cell[0], cell[1] = cell[0] * kept, cell[1] * kept

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

    def _judge(self, level: int, right: float, wrong: float, parent: float, was_right: bool) -> float:
        """The estimate of this level, and how well each strength would have predicted the outcome."""
        seen = right + wrong
        if level != self.turn:  # each has its turn: strengths change slowly
            strength = self.strengths[level]
            return (wrong + strength * parent) / (seen + strength)
        losses = self.losses[level]
        for place, strength in enumerate(STRENGTHS):
            estimate = (wrong + strength * parent) / (seen + strength)
            losses[place] = FORGET_LOSS * losses[place] - log(1 - estimate if was_right else estimate)
        strength = self.strengths[level] = STRENGTHS[losses.index(min(losses))]
        return (wrong + strength * parent) / (seen + strength)

    def _freshen(self, record: Record, kind: int) -> None:
        """After the world changed, keep a tenth of the belief, the rest is what is usual; and begin to count anew."""
        usual = self.priors[kind].weights
        record.weights = array("d", [0.1 * old + 0.9 * new for old, new in zip(record.weights, usual, strict=True)])
        record.right, record.seen, record.age = 0.0, record.seen / 4, self.age
