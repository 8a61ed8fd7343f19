"""Which bursts there are: those planted, and those that a stream has by itself, seen in hindsight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmcache.lab.traces.arrivals import Arrivals
from mmcache.lab.traces.trace import Floats

FACTORS = (2, 3, 5)
LENGTHS = (120.0, 300.0, 900.0)
"""Seconds."""
SORTS = tuple((factor, length) for factor in FACTORS for length in LENGTHS)
MINUTE = 60.0


@dataclass(frozen=True)
class Burst:
    """From `start` to `end`, in seconds; factor 0: the stream's own."""

    start: float
    end: float
    factor: int = 0

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start


def plant(stream: Arrivals, bursts: Sequence[Burst], seed: int) -> Floats:
    """The stream's times with `factor - 1` more copies of what comes within each burst, each turned round by a random
    part of the burst: so what is added comes in the same clusters as what is there, at other moments."""
    random = np.random.default_rng([seed, 77])
    found = [stream.times]
    for burst in bursts:
        first, last = np.searchsorted(stream.times, [burst.start, burst.end])
        inside = stream.times[first:last] - burst.start
        found += [
            burst.start + (inside + random.uniform(0, burst.seconds)) % burst.seconds for _ in range(burst.factor - 1)
        ]
    return np.sort(np.concatenate(found))


def one(stream: Arrivals, factor: int, length: float, seed: int) -> Burst:
    """In the second half of a short stream, where its beginning has been learned from."""
    random = np.random.default_rng([seed, factor, int(length)])
    start = float(random.uniform(0.45 * stream.seconds, stream.seconds - length - 120))
    return Burst(start, start + length, factor)


def many(first: float, last: float, seed: int) -> list[Burst]:
    """Of every sort as many as there is room for between `first` and `last`, more than an hour and a half apart."""
    random = np.random.default_rng([seed, 5])
    apart = 8000.0
    places = np.arange(first, last - apart, apart)
    order = [SORTS[place % len(SORTS)] for place in range(len(places))]
    random.shuffle(order)
    starts = [float(place + random.uniform(0, 1500)) for place in places]
    return [Burst(at, at + length, factor) for at, (factor, length) in zip(starts, order, strict=True)]


def own(stream: Arrivals) -> list[Burst]:
    """In hindsight: at least two minutes running, each with more than 1.5 times the median of the two hours around it
    (as far as there are any); what is less than five minutes apart is one."""
    counts = stream.counts(MINUTE)
    around = [np.median(counts[max(0, at - 60) : at + 61]) for at in range(len(counts))]
    high = counts > 1.5 * np.array(around)
    found: list[Burst] = []
    at = 0
    while at < len(high):
        end = at
        while end < len(high) and high[end]:
            end += 1
        if end - at >= 2:
            if found and at * MINUTE - found[-1].end < 300:
                found[-1] = Burst(found[-1].start, end * MINUTE)
            else:
                found.append(Burst(at * MINUTE, end * MINUTE))
        at = end + 1
    return found
