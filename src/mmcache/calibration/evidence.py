"""How likely is the stored answer wrong? A ranking from all outcomes so far; what it is worth is certified elsewhere.

First what is generally so at such a nearness of pictures and sounds and such a difference of words: a curve that falls
with the texts' similarity (`general`). On this score each neighbourhood learns its own threshold, and on that each pair
of a wording and a neighbourhood (`thresholds`): questions repeat over thousands of pictures, so "read the serial
number" soon is refused where "what animal is it" is not.

A neighbourhood is a stored wording at one nearness of pictures and sounds, with words that differ or without. Where
these are the very same, wordings whose answers were found right for each other are one neighbourhood (`homes`): most
wordings are near but once or twice, and what was seen of one tells about the others. Two of a home that are found to
differ part again. Memory is bounded; what was not taught longest is forgotten.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from mmcache.calibration.distance import NEARS, group, nearness, text_bin
from mmcache.calibration.general import CLASSES, General, classed
from mmcache.calibration.thresholds import Prior, predict, score, update
from mmcache.likeness.base import Likeness, WordDifference

SUSPENDED = 8
"""Right outcomes that a neighbourhood needs after a surprise; doubled with each further one."""
EXPECTED = 0.5
"""But no more than this ÷ its estimated P(wrong): where one in ten is wrong, one wrong is no surprise."""
MOST_STANDS_FOR = 20.0
_PLACE = [bytes([place]) for place in range(NEARS * CLASSES)]


class Weight(NamedTuple):
    """What speaks for and against one request."""

    wrong: float
    """Estimated P(wrong)."""
    own: float
    """Right outcomes of this neighbourhood since it last was wrong unexpectedly."""
    waiting: int
    """Right outcomes that its neighbourhood still owes after a surprise."""


class Record:
    """One neighbourhood, or one pair of a wording and a neighbourhood."""

    __slots__ = ("age", "owed", "right", "seen", "surprises", "weights")

    def __init__(self, age: int, weights: array[float]) -> None:
        self.age, self.weights = age, weights
        self.seen = self.right = 0.0
        self.owed = self.surprises = 0


class Evidence:
    """The ranking. `window`: outcomes that memory spans where it must not be longer, about 2 ÷ max_error."""

    def __init__(self, *, neighbourhoods: int, window: float) -> None:
        self._most, self._window = neighbourhoods, window
        self.general = General(window)
        self.records: dict[bytes, Record] = {}
        """By home and place (17 bytes), and by wording, home and place (33); least lately taught first."""
        self.homes: dict[bytes, bytes] = {}
        """Of wordings that are not their own: the wording that names their neighbourhood. Oldest first."""
        self.priors = tuple(Prior(neutral=kind < 2) for kind in range(2 * CLASSES))
        """Of neighbourhoods and of pairs whose words do not differ; of those whose words do."""
        self.age = 0

    def weigh(self, likeness: Likeness) -> Weight:
        """What speaks for and against serving `likeness`, which must be comparable. Changes nothing."""
        near = nearness(likeness)
        differs = likeness.words is not WordDifference.NONE
        place = score(self.general.wrong(near, group(likeness, near), text_bin(likeness)))
        name = self._name(likeness, near)
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
        differs = likeness.words is not WordDifference.NONE
        wrong = self.general.learn(near, group(likeness, near), text_bin(likeness), right, stands_for)
        name = self._name(likeness, near)
        record, wrong = self._teach(name, 2 * differs, wrong, right, stands_for)
        _, wrong = self._teach(likeness.asked + name, 2 * differs + 1, wrong, right, stands_for)
        if not near:
            self._settle(likeness, right)
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
        self.general.fade(kept)

    def home(self, wording: bytes) -> bytes:
        """The wording that names its neighbourhood where pictures and sounds are the very same."""
        return self.homes.get(wording, wording)

    def _name(self, likeness: Likeness, near: int) -> bytes:
        home = likeness.stored if near else self.home(likeness.stored)
        return home + _PLACE[classed(near, likeness.words.value)]

    def _settle(self, likeness: Likeness, right: bool) -> None:
        """Whose answers are right for each other live together, until they are not."""
        asked, stored, home = likeness.asked, likeness.stored, self.home(likeness.stored)
        if asked == stored:
            return
        if right:
            if asked not in self.homes and asked != home:
                self.homes[asked] = home
        elif self.home(asked) == home:
            leaves = stored if asked == home else asked
            self.homes[leaves] = leaves
        while len(self.homes) > self._most:
            del self.homes[next(iter(self.homes))]

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
