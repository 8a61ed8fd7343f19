"""What came of near hits: counts, and outcomes to learn a tolerance from."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from mmcache.forks import Lock
from mmcache.model.errors import InvalidInputError
from mmcache.retrieval.tolerance import Observation, interval

MOST_OBSERVATIONS = 10_000


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """Counts since the start. Exact hits stand in `cache.stats()`."""

    near: int
    """Lookups answered with the results of a near query."""
    searched: int
    """Times the store was asked by a lookup."""
    checked: int
    """Near hits drawn for a check: the store was asked too, and its results were handed out."""
    wrong: int
    """Of those checked, how many had another first document."""
    overlap: float
    """Mean share of the store's documents that were in the near hit's results, of those checked; 1.0 without any."""
    remembered: int
    """Queries whose embeddings are kept."""

    @property
    def wrong_rate(self) -> tuple[float, float]:
        """The 95 % interval of the share of near hits that are wrong (Clopper and Pearson, 1934)."""
        return interval(self.wrong, self.checked)

    def __str__(self) -> str:
        low, high = self.wrong_rate
        return (
            f"{self.near} near hits, {self.searched} searches, {self.remembered} queries remembered; "
            f"{self.checked} checked, {self.wrong} wrong ({low:.1%} to {high:.1%} at 95 %), overlap {self.overlap:.1%}"
        )


def as_is(value: Any) -> Iterable[Hashable]:
    """A result that is itself the list of its documents. Raises `InvalidInputError` for what looks like one only.

    The first of a dict is the name of its first field, the same in every result: no near hit would ever be wrong.
    """
    if isinstance(value, Mapping | Set | str | bytes):
        raise InvalidInputError(
            f"a result is a {type(value).__name__}, not a list of documents: pass documents=, a function that gives "
            "their names, best first"
        )
    return value  # type: ignore[no-any-return]


class Observed:
    """Counts outcomes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._near = self._searched = self._checked = self._wrong = 0
        self._overlap = 0.0
        self._seen: deque[Observation] = deque(maxlen=MOST_OBSERVATIONS)

    def near(self) -> None:
        """A near hit was handed out."""
        with self._lock:
            self._near += 1

    def searched(self) -> None:
        """The store was asked."""
        with self._lock:
            self._searched += 1

    def compared(
        self, served: Sequence[Hashable], fresh: Sequence[Hashable], picture: float, text: float, allowed: bool
    ) -> None:
        """The results of a near query beside the store's, best first; `allowed`: they would have been served."""
        wrong = list(served[:1]) != list(fresh[:1])
        share = len(set(served) & set(fresh)) / len(set(fresh)) if fresh else float(not served)
        with self._lock:
            self._seen.append(Observation(picture, text, wrong))
            if allowed:
                self._checked += 1
                self._wrong += wrong
                self._overlap += share

    def observations(self) -> list[Observation]:
        """The latest, oldest first."""
        with self._lock:
            return list(self._seen)

    def report(self, remembered: int) -> RetrievalReport:
        """All counts."""
        with self._lock:
            overlap = self._overlap / self._checked if self._checked else 1.0
            return RetrievalReport(self._near, self._searched, self._checked, self._wrong, overlap, remembered)
