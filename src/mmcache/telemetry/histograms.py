"""A histogram with an exemplar in each bucket: the trace of a value in it, so that a slow bucket leads to its cause."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from mmcache.forks import Lock
from mmcache.telemetry.names import BOUNDS


class Exemplar(NamedTuple):
    """One value, and where it came from."""

    value: float
    trace: str
    """32 hex digits."""
    span: str
    """16 hex digits."""
    when: float
    """Unix seconds."""


class Buckets(NamedTuple):
    """A snapshot."""

    counts: tuple[int, ...]
    """Of each bucket by itself; the last has no upper bound."""
    sum: float
    exemplars: tuple[Exemplar | None, ...]

    def plus(self, other: Buckets) -> Buckets:
        """Both; the later exemplars."""
        return Buckets(
            tuple(x + y for x, y in zip(self.counts, other.counts, strict=True)),
            self.sum + other.sum,
            tuple(max(x, y, key=_when) for x, y in zip(self.exemplars, other.exemplars, strict=True)),
        )


def _when(exemplar: Exemplar | None) -> float:
    return -1.0 if exemplar is None else exemplar.when


EMPTY = Buckets((0,) * (len(BOUNDS) + 1), 0.0, (None,) * (len(BOUNDS) + 1))


class Histogram:
    """By one label. Exact under threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, Buckets] = {}

    def observe(self, label: str, value: float, exemplar: Exemplar | None = None) -> None:
        """Count a value, seconds; the latest exemplar of a bucket stays."""
        place = bisect_left(BOUNDS, value)
        with self._lock:
            counts, total, exemplars = self._found.get(label, EMPTY)
            counts = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if exemplar is not None:
                exemplars = (*exemplars[:place], exemplar, *exemplars[place + 1 :])
            self._found[label] = Buckets(counts, total + value, exemplars)

    def read(self) -> dict[str, Buckets]:
        """By label."""
        return dict(self._found)

    def fork(self) -> None:
        """This process is another one now."""
        self._found = {}
