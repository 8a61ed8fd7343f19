"""What was searched for: embeddings of remembered queries, found again by code, verified by cosine.

A scan of 128-bit codes leaves few candidates; only theirs are compared as floats. Each modality passes its own gate.
No third party, no clock; bounded; a query that is lost here costs a miss and never a wrong hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mmcache.forks import Lock
from mmcache.keys.joint import Alignment, Codes, Floats, Statistics, hamming, radius
from mmcache.likeness.base import WordDifference
from mmcache.likeness.words import Words, analyse, differences
from mmcache.model.errors import InvalidInputError
from mmcache.retrieval.tolerance import Tolerance

Strategy = Literal["joint", "vision", "text"]
Indices = npt.NDArray[np.intp]

TELLING = WordDifference.NUMBER | WordDifference.NEGATION | WordDifference.QUOTED | WordDifference.NAME
"""What only one text has and no cosine tells: page 7 and page 9, with and without, one name and another."""
MOST_TRIED = 16
"""Of the nearest queries, where words stand against them."""
FIT_AFTER = 256
"""Distinct queries after which statistics are fitted and frozen, where none were given."""
FIT_CONTENTS = 32
"""Distinct pictures, or texts, that they need; until there are, only the same one is near in that modality."""


@dataclass(frozen=True, slots=True)
class Query:
    """One retrieval: what identifies it, and what the store is asked with."""

    digest: bytes
    """Of the exact joint key, 16 bytes."""
    group: bytes
    """Of everything but picture and words, 16 bytes; queries of two groups are never near."""
    k: int
    arguments: Mapping[str, Any]
    """What else the store is asked with."""
    picture: bytes | None
    """Key of the picture; None = none given."""
    text: bytes | None
    words: str
    """The text itself; empty where none was given."""
    vectors: tuple[Floats | None, Floats | None]
    """Embeddings as the encoders gave them, float32 [d] each."""

    @property
    def number(self) -> int:
        """64 bits of the group, for scans; whoever is found is compared in full."""
        return int.from_bytes(self.group[:8], "little", signed=True)


@dataclass(frozen=True, slots=True)
class Match:
    """The remembered query that is nearest, gate by gate."""

    digest: bytes
    picture: float
    """Cosine of the aligned embeddings; 1.0 where both pictures are the same, or there are none."""
    text: float


class _Side:
    """One modality of all remembered queries, in rows."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.statistics: Statistics | None = None
        self._vectors: Floats = np.empty((0, 0), np.float32)
        self._codes: Codes = np.empty((2, 0), np.uint64)
        self._norms: Floats = np.empty(0, np.float32)
        self._numbers = np.full(capacity, -1, np.int64)  # of the content; −1 = none given
        self._known: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._uses: dict[int, int] = {}
        self._next = 0

    def put(self, row: int, key: bytes | None, vector: Floats | None) -> None:
        self._forget(row)
        if key is None or vector is None:
            return
        if self._vectors.shape[1] == 0:
            self._vectors = np.empty((self._capacity, len(vector)), np.float32)
            self._codes, self._norms = np.zeros((2, self._capacity), np.uint64), np.empty(self._capacity, np.float32)
        expected = self._vectors.shape[1] if self.statistics is None else len(self.statistics.mean)
        if len(vector) != expected:
            raise InvalidInputError(
                f"an encoder gave {len(vector)} dimensions where {expected} are known; use one Retrieval a model, and "
                "an alignment of its own"
            )
        self._vectors[row] = vector
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self._next
            self._keys[number] = key
            self._next += 1
        self._numbers[row] = number
        self._uses[number] = self._uses.get(number, 0) + 1
        if self.statistics is not None:
            self._encode(self.statistics, np.array([row]))

    def _forget(self, row: int) -> None:
        number = int(self._numbers[row])
        if number < 0:
            return
        self._numbers[row] = -1
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._uses[number]
            del self._known[self._keys.pop(number)]

    def freeze(self, statistics: Statistics) -> None:
        self.statistics = statistics
        rows = np.flatnonzero(self._numbers >= 0)
        if len(rows):
            self._encode(statistics, rows)

    def _encode(self, statistics: Statistics, rows: Indices) -> None:
        vectors = self._vectors[rows]
        self._codes[:, rows] = statistics.codes(vectors)
        self._norms[rows] = np.linalg.norm(vectors - statistics.mean, axis=1)

    def takes(self, vector: Floats | None) -> bool:
        """Whether it can be compared: it has as many dimensions as the statistics, if there are some."""
        return vector is None or self.statistics is None or len(vector) == len(self.statistics.mean)

    def contents(self) -> int:
        return len(self._known)

    def held(self) -> Floats:
        """One vector a content: one picture that is asked about again and again is not what pictures are like."""
        numbers, rows = np.unique(self._numbers, return_index=True)
        return self._vectors[rows[numbers >= 0]]

    def vector(self, row: int) -> Floats | None:
        return self._vectors[row].copy() if self._numbers[row] >= 0 else None

    def number(self, key: bytes | None) -> int:
        return -1 if key is None else self._known.get(key, -2)

    def same(self, rows: Indices, row: int) -> Indices:
        return np.asarray(rows[self._numbers[rows] == self._numbers[row]])

    def near(self, rows: Indices | slice, vector: Floats | None, number: int, least: float) -> npt.NDArray[np.bool_]:
        """Which of `rows` have codes that could be near enough, or the same content."""
        numbers = self._numbers[rows]
        if vector is None:
            return np.asarray(numbers == -1)
        same = numbers == number
        if least >= 1.0 or self.statistics is None or not self._codes.size:
            return np.asarray(same)
        within = hamming(self._codes[:, rows], self.statistics.codes(vector)) <= radius(least)
        return np.asarray(same | within)

    def cosines(self, rows: Indices, vector: Floats | None, number: int) -> Floats:
        """Of the aligned vectors; exactly 1.0 for the same content."""
        if vector is None:
            return np.ones(len(rows), np.float32)
        if self.statistics is None:
            return np.where(self._numbers[rows] == number, np.float32(1), np.float32(-1))
        asked = self.statistics.aligned(vector)
        products = self._vectors[rows] @ asked - np.float32(asked @ self.statistics.mean)
        norms = self._norms[rows]
        cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 1e-6)
        cosines[self._numbers[rows] == number] = 1.0
        return np.asarray(cosines, np.float32)


class Queries:
    """At most `capacity` remembered queries. Thread-safe. Rows are reused, those without a use first (CLOCK)."""

    def __init__(self, capacity: int, alignment: Alignment | None = None) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._sides = _Side(capacity), _Side(capacity)
        self._queries: list[Query | None] = []  # without their vectors, which lie in the sides' rows
        self._words: list[Words] = [analyse("")] * capacity
        self._groups = np.zeros(capacity, np.int64)
        self._uses = np.zeros(capacity, np.int64)
        self._fresh = np.zeros(capacity, np.bool_)
        self._rows: dict[bytes, int] = {}
        self._hand = 0
        if alignment is not None:
            self._sides[0].freeze(alignment.picture)
            self._sides[1].freeze(alignment.text)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ready(self) -> bool:
        """Whether any statistics are frozen: before, nothing is near."""
        return any(side.statistics is not None for side in self._sides)

    @property
    def means(self) -> tuple[Floats | None, Floats | None]:
        """Of the frozen statistics, picture and text; None where there are none yet."""
        found = [None if side.statistics is None else side.statistics.mean for side in self._sides]
        return found[0], found[1]

    def freeze(self, means: Sequence[Floats | None]) -> None:
        """Take statistics that were frozen before, unless there are some."""
        with self._lock:
            for side, mean in zip(self._sides, means, strict=True):
                if mean is not None and side.statistics is None:
                    side.freeze(Statistics(np.array(mean, np.float32)))

    def touch(self, digest: bytes) -> None:
        """It was asked for again."""
        row = self._rows.get(digest)
        if row is not None:
            self._uses[row] += 1
            self._fresh[row] = True

    def add(self, query: Query) -> None:
        """Remember a query that the store was asked. Raises `InvalidInputError` for another number of dimensions."""
        with self._lock:
            if query.digest in self._rows:
                self.touch(query.digest)
                return
            row = self._free()
            for side, key, vector in zip(self._sides, (query.picture, query.text), query.vectors, strict=True):
                side.put(row, key, vector)
            self._queries[row] = replace(query, vectors=(None, None))
            self._words[row] = analyse(query.words)
            self._groups[row] = query.number
            self._uses[row], self._fresh[row] = 1, False
            self._rows[query.digest] = row
            if len(self._rows) >= min(FIT_AFTER, self._capacity):
                self._fit()

    def _free(self) -> int:
        if len(self._queries) < self._capacity:
            self._queries.append(None)
            return len(self._queries) - 1
        while self._fresh[self._hand]:  # ends: each step makes one stale
            self._fresh[self._hand] = False
            self._hand = (self._hand + 1) % self._capacity
        row, self._hand = self._hand, (self._hand + 1) % self._capacity
        gone = self._queries[row]
        if gone is not None:
            del self._rows[gone.digest]
            self._queries[row] = None
        return row

    def _fit(self) -> None:
        for side in self._sides:
            if side.statistics is None and side.contents() >= max(2, min(FIT_CONTENTS, self._capacity)):
                side.freeze(Statistics.fit(side.held()))

    def find(self, query: Query, tolerance: Tolerance, strategy: Strategy = "joint") -> Match | None:
        """The nearest within the tolerance, whose words differ in no number, negation, quotation or name.

        `joint` looks at pairs; `vision` commits to the one nearest picture first and then looks at what was asked of
        it, `text` the other way round: they lose pairs whose other half was asked with a farther neighbour.
        """
        with self._lock:
            keys = query.picture, query.text
            numbers = [side.number(key) for side, key in zip(self._sides, keys, strict=True)]
            least = tolerance.picture, tolerance.text
            if not all(side.takes(vector) for side, vector in zip(self._sides, query.vectors, strict=True)):
                return None
            rows: Indices | None = None
            for place in (1, 0) if strategy == "text" else (0, 1):
                side, vector, number = self._sides[place], query.vectors[place], numbers[place]
                if rows is None:  # all of them: whole columns are scanned, nothing is gathered
                    every = slice(len(self._queries))
                    found = side.near(every, vector, number, least[place]) & (self._groups[every] == query.number)
                    rows = np.flatnonzero(found)
                else:
                    rows = rows[side.near(rows, vector, number, least[place])]
                if len(rows) and strategy != "joint":
                    cosines = side.cosines(rows, vector, number)
                    best = int(cosines.argmax())
                    rows = side.same(rows, int(rows[best])) if cosines[best] >= least[place] else rows[:0]
            if rows is None or not len(rows):
                return None
            pairs = [
                side.cosines(rows, vector, number)
                for side, vector, number in zip(self._sides, query.vectors, numbers, strict=True)
            ]
            passed = np.flatnonzero((pairs[0] >= least[0]) & (pairs[1] >= least[1]))
            if not len(passed):
                return None
            asked = analyse(query.words)
            for best in map(int, passed[np.argsort(-(pairs[0] + pairs[1])[passed], kind="stable")][:MOST_TRIED]):
                known = self._queries[int(rows[best])]
                if known is None or known.group != query.group or differences(asked, self._words[rows[best]]) & TELLING:
                    continue
                return Match(known.digest, float(pairs[0][best]), float(pairs[1][best]))
            return None

    def _candidates(self, query: Query) -> Indices:
        return np.flatnonzero(self._groups[: len(self._queries)] == query.number)

    def nearest(self, query: Query) -> tuple[float, float]:
        """The best cosine of any remembered picture, and of any remembered words: for the locator. −1 = none."""
        with self._lock:
            rows, best = self._candidates(query), [-1.0, -1.0]
            for place, (side, vector, key) in enumerate(
                zip(self._sides, query.vectors, (query.picture, query.text), strict=True)
            ):
                if vector is None:
                    best[place] = 1.0
                elif len(rows) and side.takes(vector):
                    best[place] = float(side.cosines(rows, vector, side.number(key)).max())
            return best[0], best[1]

    def hottest(self, limit: int | None = None) -> Iterator[Query]:
        """Remembered queries, those asked most often first."""
        with self._lock:
            order = np.argsort(-self._uses[: len(self._queries)], kind="stable")[:limit]
            held = [(self._queries[row], [side.vector(row) for side in self._sides]) for row in map(int, order)]
        for found, (picture, text) in held:
            if found is not None:
                yield replace(found, vectors=(picture, text))
