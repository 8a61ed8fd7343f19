"""How many are recorded, and how many like it each of them stands for. Pure, but for `Draw`."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_OF_A_CALL = 128
"""Spans for the lookups of one call."""
_CAUTION = 0.9
"""Share of the limit that is aimed at."""
_FASTEST = 2.0
"""Times by which the share may grow from one look to the next."""
_BITS = 56
"""Of a threshold in a trace state."""


class Draw:
    """Draws by chance, of its own: the program's `random` gives what it would without us. Safe under threads."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a forked child, which must not draw as its parent does."""
        self.random = random.Random(os.urandom(16)).random


class Pace:
    """The share of what has no parent that is recorded: `sample`, or less, so that there are at most `most` a second.

    Decided again after each look at what was made, so that a burst between two looks may be more.
    """

    def __init__(self, sample: float, most: float) -> None:
        self.sample, self.most = sample, most
        self.share = sample if most > 0 else 0.0

    def after(self, made: int, seconds: float) -> float:
        """So many were made in so much time by the last share; the next one."""
        if self.share > 0.0 and seconds > 0.0:
            wanted = _FASTEST if made == 0 else min(_FASTEST, _CAUTION * self.most * seconds / made)
            self.share = min(self.sample, self.share * wanted)
        return self.share

    @property
    def weight(self) -> float:
        """How many one that is recorded stands for."""
        return 1.0 / self.share if self.share > 0.0 else 0.0

    @property
    def every(self) -> int:
        """One in so many hits of memory, which are drawn without a share; 0 = none."""
        return min((1 << 31) - 1, max(1, round(1.0 / self.share))) if self.share > 0.0 else 0


class Allowance:
    """So many a second; what is not taken is kept for up to a second."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second, self._left, self._when = per_second, max(1.0, per_second), now

    def take(self, wanted: int, now: float) -> int:
        """How many of `wanted` may be had; at least one. now: monotonic seconds."""
        more = (now - self._when) * self._per_second
        self._left, self._when = min(max(1.0, self._per_second), self._left + more), now
        taken = max(1, min(wanted, int(self._left)))
        self._left -= min(self._left, taken)
        return taken


class Burst:
    """Of what comes in a burst ever fewer are made, and each of them stands for more, until the share has sunk.

    step: how many are made by one ratio; then by half of it.
    """

    def __init__(self, step: float) -> None:
        self._step, self._made = max(1.0, step), 0

    def take(self, count: int, drawn: float) -> float:
        """How many times as many `count` spans stand for; 0 = left out. drawn: by chance, from 0 to below 1."""
        times = 2.0 ** min(_BITS, 1 + int(self._made / self._step))
        if drawn * times >= 1.0:
            return 0.0
        self._made += count
        return times

    def over(self) -> None:
        """The share is decided anew."""
        self._made = 0


def weight_of(trace_state: str) -> float:
    """How many traces one stands for, by the `ot` entry of its trace state; 1 where it does not say.

    `th:T` is the 56-bit threshold, in hex without its trailing zeros, below which traces were left out (OpenTelemetry,
    "TraceState: Probability Sampling").
    """
    for part in trace_state.split(";"):
        name, _, threshold = part.partition(":")
        if name == "th" and 0 < len(threshold) <= _BITS // 4 and set(threshold) <= set("0123456789abcdef"):
            kept = (1 << _BITS) - int(threshold.ljust(_BITS // 4, "0"), 16)
            return float(1 << _BITS) / kept
    return 1.0


def thinned(some: Sequence[T], most: int, start: float = 0.0) -> tuple[Sequence[T], float]:
    """At most `most` of them, evenly; and how many each of these stands for.

    start: from 0 to below 1. Drawn by chance, all of them are as likely to stay (systematic sampling; Madow and Madow,
    Ann. Math. Statist. 1944): what is always at the same place, as a picture's tiles are, is neither always left out
    nor always in.
    """
    if len(some) <= most:
        return some, 1.0
    step = len(some) / most
    return [some[min(len(some) - 1, int((i + start) * step))] for i in range(most)], step
