"""The locator: at which hop did a lookup die, and how long did each take?"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mmcache.forks import Lock
from mmcache.model.errors import RetrievalError


class HopName(StrEnum):
    """The hops of a lookup, in the order in which it may die."""

    PICTURE = "picture"
    """Identifying the picture, and its embedding where one is needed."""
    TEXT = "text"
    JOINT = "joint"
    """The joint key, and the remembered queries near it."""
    STORE = "store"
    """The vector store."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What one hop did."""

    name: HopName
    outcome: str
    """`none given`, `known`, `held`, `computed`; of the joint key `hit`, `near`, `checked`, `miss`; of the store
    `searched`, `shared` (another caller's search); anywhere `failed`.
    """
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class Located:
    """One lookup, hop by hop."""

    value: Any
    """What it gave; None where it failed."""
    hops: tuple[Hop, ...]
    died: HopName | None = None
    """The first hop that could not be answered from what is known; None = a hit."""
    error: RetrievalError | None = None

    @property
    def seconds(self) -> float:
        """Of all hops."""
        return sum(hop.seconds for hop in self.hops)

    def __str__(self) -> str:
        lines = [
            f"{hop.name.value:<8}{hop.outcome:<12}{hop.seconds * 1e3:9.3f} ms  {hop.detail}".rstrip()
            for hop in self.hops
        ]
        verdict = "a hit" if self.died is None else f"died at: {self.died.value}"
        return "\n".join([*lines, f"{verdict}, {self.seconds * 1e3:.3f} ms"])


class Trace:
    """The record of a lookup while it runs. Time between two marks belongs to the hop of the later one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock()
        self._hops: dict[HopName, tuple[str, float, str]] = {}
        self.died: HopName | None = None

    def mark(self, name: HopName, outcome: str, detail: str = "") -> None:
        """`name` has worked until now; a later mark of the same hop adds its time and corrects the outcome."""
        now = self._clock()
        _, seconds, said = self._hops.get(name, ("", 0.0, ""))
        self._hops[name] = (outcome, seconds + now - self._last, detail or said)
        self._last = now

    def resume(self) -> None:
        """Time since the last mark was the locator's own, and counts for no hop."""
        self._last = self._clock()

    def located(self, value: Any, error: RetrievalError | None = None) -> Located:
        """The finished record."""
        hops = tuple(Hop(name, *self._hops[name]) for name in HopName if name in self._hops)
        return Located(value, hops, self.died, error)


@dataclass(slots=True)
class HopReport:
    """What one hop did in all lookups that a `Locator` saw."""

    visits: int = 0
    died: int = 0
    """Lookups that died here."""
    failed: int = 0
    seconds: float = 0.0
    """In total."""
    longest: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Seconds a visit."""
        return self.seconds / self.visits if self.visits else 0.0


class Locator:
    """Collects lookups: pass one to `Retrieval(locator=…)`. Thread-safe; bounded. Without one, nothing is recorded."""

    def __init__(self, recent: int = 256) -> None:
        self._lock = Lock()
        self._recent: deque[Located] = deque(maxlen=recent)
        self._hops = {name: HopReport() for name in HopName}
        self._lookups = self._hits = 0

    def add(self, located: Located) -> None:
        """One more lookup."""
        with self._lock:
            self._lookups += 1
            self._hits += located.died is None
            self._recent.append(located)
            for hop in located.hops:
                report = self._hops[hop.name]
                report.visits += 1
                report.failed += hop.outcome == "failed"
                report.died += hop.name is located.died
                report.seconds += hop.seconds
                report.longest = max(report.longest, hop.seconds)
                report.outcomes[hop.outcome] = report.outcomes.get(hop.outcome, 0) + 1

    @property
    def lookups(self) -> int:
        """How many it saw."""
        return self._lookups

    @property
    def hits(self) -> int:
        """How many of them did not die."""
        return self._hits

    def recent(self) -> list[Located]:
        """The last lookups, oldest first."""
        with self._lock:
            return list(self._recent)

    def hop(self, name: HopName | str) -> HopReport:
        """What one hop did. Raises `ValueError` for a name that is none."""
        return self._hops[HopName(name)]

    def __str__(self) -> str:
        share = f"{self._hits / self._lookups:.1%}" if self._lookups else "none"
        lines = [f"{self._lookups} lookups, hits: {share}"]
        for name, report in self._hops.items():
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.outcomes.items()))
            lines.append(
                f"{name.value:<8}{report.died:>7} died {report.mean * 1e3:9.3f} ms mean "
                f"{report.longest * 1e3:9.3f} ms longest  {outcomes}"
            )
        return "\n".join(lines)
