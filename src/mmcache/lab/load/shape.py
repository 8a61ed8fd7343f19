"""How many requests come when: pure, drawn from a seed."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError, SettingsError

Floats = npt.NDArray[np.float64]

RAMP_STEPS = 60
_TIMES = ("timestamp", "time", "ts", "date", "datetime", "start", "arrival")
_BURST = re.compile(r"(?P<factor>\d+(\.\d+)?)@(?P<start>\d+(\.\d+)?)(\+(?P<length>\d+(\.\d+)?))?")


@dataclass(frozen=True)
class Shape:
    """A rate over time, in times of the mean that was asked for: `factors[i]` from second `starts[i]` on."""

    starts: tuple[float, ...] = (0.0,)
    factors: tuple[float, ...] = (1.0,)

    def at(self, second: float) -> float:
        """The factor then."""
        place = int(np.searchsorted(self.starts, second, side="right")) - 1
        return self.factors[max(0, place)]

    def mean(self, seconds: float) -> float:
        """Of the factors, from the beginning on."""
        edges = [0.0, *(start for start in self.starts if 0 < start < seconds), seconds]
        return sum(self.at(low) * (high - low) for low, high in pairwise(edges)) / seconds

    def arrivals(self, rate: float, begin: float, end: float, random: np.random.Generator) -> Floats:
        """When requests come in [begin, end), seconds, in order: a Poisson process of so many a second at factor 1."""
        edges = [begin, *(start for start in self.starts if begin < start < end), end]
        drawn = [
            random.uniform(low, high, random.poisson(rate * self.at(low) * (high - low)))
            for low, high in pairwise(edges)
        ]
        return np.sort(np.concatenate(drawn))


def steady() -> Shape:
    """The same all the time."""
    return Shape()


def burst(text: str) -> Shape:
    """`3@60+30`: three times as much from second 60 on, for 30 seconds; without `+30` to the end.

    Raises `SettingsError`.
    """
    found = _BURST.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"a burst is FACTOR@START+LENGTH, such as 3@60+30, not {text!r}")
    factor, start = float(found["factor"]), float(found["start"])
    starts, factors = (0.0, start), (1.0, factor)
    if start == 0:
        starts, factors = (0.0,), (factor,)  # type: ignore[assignment]
    if found["length"] is not None:
        return Shape((*starts, start + float(found["length"])), (*factors, 1.0))
    return Shape(starts, factors)


def ramp(seconds: float) -> Shape:
    """From nothing to twice the mean, in even steps."""
    starts = tuple(seconds * step / RAMP_STEPS for step in range(RAMP_STEPS))
    return Shape(starts, tuple((2 * step + 1) / RAMP_STEPS for step in range(RAMP_STEPS)))


def traced(times: Floats, seconds: float, bins: int = 200) -> Shape:
    """What a log had, played in `seconds`: its own bursts and lulls, at the mean that is asked for."""
    counts, _ = np.histogram(times, bins, (float(times.min()), float(times.max()) or 1.0))
    starts = tuple(float(start) for start in np.arange(bins) * seconds / bins)
    return Shape(starts, tuple(float(factor) for factor in counts / counts.mean()))


def arrival_times(path: Path) -> Floats:
    """When requests came, by a CSV or JSON-lines file with a column of times (`timestamp`, `time`, `start`…), in order.

    A file of windows (columns `start` and `rate`) stands for so many requests a window. Raises `InvalidInputError`.
    """
    with path.open(encoding="utf-8", errors="replace") as stream:
        found = np.array(list(_told(path, stream)), np.float64)
    if len(found) < 2 or found.min() == found.max():
        raise InvalidInputError(f"{path} does not tell of two moments when requests came")
    return np.sort(found)


def _told(path: Path, stream: IO[str]) -> Iterator[float]:
    first = stream.readline()
    rows: Iterator[dict[str, object]]
    if first.lstrip().startswith("{"):
        rows = (_object(path, line) for line in chain([first], stream) if line.strip())
    else:
        header = [word.strip().lower() for word in next(csv.reader([first]))]
        rows = (dict(zip(header, cells, strict=False)) for cells in csv.reader(stream))
    for number, row in enumerate(rows, 1):
        name = next((name for name in _TIMES if name in row), None)
        if name is None:
            raise InvalidInputError(f"{path} has no column of times ({', '.join(_TIMES)}): {sorted(row)}"[:300])
        times = max(1, round(_seconds(path, number, row["rate"]))) if "rate" in row else 1
        yield from [_seconds(path, number, row[name])] * times


def _object(path: Path, line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InvalidInputError(f"{path}: no line of JSON: {line!r:.60}") from error
    if not isinstance(found, dict):
        raise InvalidInputError(f"{path}: no object in a line of JSON: {line!r:.60}")
    return found


def _seconds(path: Path, number: int, cell: object) -> float:
    try:
        seconds = float(str(cell))
    except ValueError:
        try:
            seconds = datetime.fromisoformat(str(cell).strip()).timestamp()
        except ValueError as error:
            raise InvalidInputError(f"{path}, row {number}: not a time: {cell!r:.60}") from error
    if not math.isfinite(seconds):
        raise InvalidInputError(f"{path}, row {number}: not a time: {cell!r:.60}")
    return seconds


def popularity(keys: int, exponent: float) -> Floats:
    """The share of requests that each key gets, most popular first: Zipf's law; exponent 0 = all the same."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    shares: Floats = weights / weights.sum()
    return shares


def mine(weights: Floats, index: int, of: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """The keys of one lane of many (every `of`-th), and the running sum of their shares: what a lane draws from.

    Requests of a Poisson process, told apart by key, are independent Poisson processes: so lanes need not agree.
    """
    numbers = np.arange(index, len(weights), of)
    return numbers, np.cumsum(weights[numbers])
