"""What one writer knows of its keys: what was acknowledged, what may be there, what is lost. Pure: time is an argument.

Each key has one writer, which numbers its writes. So of every block that is read it can be said whether it may be
there: not older than the last write that was acknowledged, not newer than the last that was sent.
"""

from __future__ import annotations

from enum import Enum
from itertools import islice

from mmcache.lab.load.counts import Lost


class Answer(Enum):
    """What a read was."""

    RIGHT = "right"
    WRONG = "wrong"
    """No version of that block has such bytes, or nobody wrote it yet."""
    STALE = "stale"
    """A newer version was acknowledged: that write is lost."""
    LOST = "lost"
    """Nothing, though a write was acknowledged. It may come back: then it was only not to be found for a while."""
    STILL = "still"
    """The same, once more."""
    UNSURE = "unsure"
    """Nothing, or less than was sent, after a write that was not acknowledged: the tier may drop what it replaced."""
    ABSENT = "absent"
    """Nothing, as it should be."""


class Ledger:
    """Of the keys of one lane."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._acknowledged: dict[int, tuple[int, float]] = {}
        self._unsure: set[int] = set()
        self._silent: dict[int, float] = {}
        """Since when a key gets no answer."""
        self._gone: dict[int, Lost] = {}
        self._lost: list[Lost] = []
        self.returned = 0
        """Keys that were not to be found for a while, and came back as they were."""
        self.longest_silence = (0.0, 0.0)
        """Seconds for which one key got no answer, and when that ended."""

    def next(self, number: int) -> int:
        """The version to write now."""
        version = self._sent[number] = self._sent.get(number, 0) + 1
        return version

    def stored(self, number: int, version: int, at: float) -> None:
        """The write was acknowledged."""
        self._acknowledged[number] = (version, at)
        self._unsure.discard(number)
        gone = self._gone.pop(number, None)
        if gone is not None:  # nobody can say any more whether it would have come back
            self._lost.append(gone)

    def refused(self, number: int) -> None:
        """It was not; it may be there all the same, and what it was to replace may be gone."""
        self._unsure.add(number)

    def read(self, number: int, version: int | None, asked: float, now: float) -> Answer:
        """A block came; `version` as `Blocks.version` has it."""
        self._answered(number, asked, now)
        known, at = self._acknowledged.get(number, (0, 0.0))
        if version is None or version > self._sent.get(number, 0):
            return Answer.WRONG
        gone = self._gone.pop(number, None)
        if version >= known:
            self.returned += gone is not None
            return Answer.RIGHT
        if number in self._unsure:
            return Answer.UNSURE
        self._lost.append(Lost(number, known, at))
        self._acknowledged[number] = (version, at)
        return Answer.STALE

    def absent(self, number: int, asked: float, now: float) -> Answer:
        """There is no block."""
        self._answered(number, asked, now)
        known = self._acknowledged.get(number)
        if number in self._unsure:
            return Answer.UNSURE
        if known is None:
            return Answer.ABSENT
        if number in self._gone:
            return Answer.STILL
        self._gone[number] = Lost(number, *known)
        return Answer.LOST

    @property
    def lost(self) -> list[Lost]:
        """So far: what has not come back."""
        return [*self._lost, *self._gone.values()]

    def unanswered(self, number: int, asked: float) -> None:
        """Nobody said whether there is one."""
        self._silent.setdefault(number, asked)

    def end(self, now: float) -> None:
        """Nothing is asked any more: what still has no answer has had none until now."""
        for number, since in list(self._silent.items()):
            self._answered(number, since, now)
            self._silent[number] = since

    def silent(self, most: int) -> list[int]:
        """Some keys that have had no answer, which is how they are asked again: to know for how long."""
        return list(islice(self._silent, most))

    def written(self) -> list[int]:
        """All keys of which something should or may be there."""
        return sorted(self._acknowledged.keys() | self._unsure)

    def _answered(self, number: int, asked: float, now: float) -> None:
        silence = now - self._silent.pop(number, asked)
        if silence > self.longest_silence[0]:
            self.longest_silence = (silence, now)
