"""Lookups by step and facet: of slices that are closed as counted, of the others from their spans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard.asking import Question
from mmcache.dashboard.closing import Slices
from mmcache.dashboard.dictionary import Dictionary, Facets
from mmcache.dashboard.schema import CLOSED_BY, LEVELS

STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
ALL = ("n", "weight", "square", "saved", "bytes")
_OF_SPAN = {
    "n": "count(*)", "weight": "sum(weight)", "square": "sum(weight * weight)",
    "saved": "sum(weight * saved_ms / 1000)", "bytes": "sum(weight * bytes)",
}  # fmt: skip
FINE, HOUR = LEVELS[0], LEVELS[-1]


@dataclass(frozen=True)
class View:
    """What a reader reads through: its cursor, and the store's parts that lie in memory."""

    cursor: Any
    known: Dictionary
    slices: Slices
    floors: dict[str, int]
    """Since when there are spans, and counts of a level."""


@dataclass(frozen=True)
class Counts:
    """Rows of (slot, facet) and what is counted of them, of lookups that were asked for."""

    start: int
    step: int
    slots: int
    slot: NDArray[np.int64]
    facet: NDArray[np.int64]
    cells: dict[str, NDArray[np.float64]]
    table: NDArray[np.int64]
    """int64[facets, columns], as of `Facets`."""

    @property
    def times(self) -> list[int]:
        """Starts of the steps."""
        return [self.start + at * self.step for at in range(self.slots)]

    def axis(self, name: str) -> NDArray[np.int64]:
        """Of each row, the word of an axis; of `hit` 0 or 1."""
        found: NDArray[np.int64] = self.table[self.facet, Facets.COLUMNS.index(name)]
        return found

    def by_slot(self, cell: str, rows: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Sums by step: float64[slots]."""
        slot, cells = (self.slot, self.cells[cell]) if rows is None else (self.slot[rows], self.cells[cell][rows])
        return np.bincount(slot, cells, self.slots).astype(np.float64)


def step_of(seconds: float, points: int) -> int:
    """Seconds of a step: so many that there are at most `points`, about."""
    least = seconds / points
    if least > STEPS[-1]:
        return int(-(-least // STEPS[-1]) * STEPS[-1])
    return next(step for step in STEPS if step >= least)


def counted(view: View, asked: Question, points: int, cells: tuple[str, ...] = ("weight",), level: int = 0) -> Counts:
    """level: the least seconds of a step."""
    step = max(step_of(asked.window.seconds, points), level)
    while step not in (STEPS[-1],) and step < STEPS[-1] and not _kept(view, step, asked):
        step = next(one for one in STEPS if one > step)
    start = int(asked.window.start // step) * step
    end = int(-(-asked.window.end // step)) * step
    mask = asked.chosen(view.known)
    slots, facets, values = [], [], []
    for source, first, last in parts(view, asked, step, start, end):
        found = _read(view, asked, source, first, last, start, step, cells)
        facet = found["facet"].astype(np.int64)
        table = view.known.facets.table() if len(facet) and facet.max() >= len(mask) else None
        if table is not None:  # a facet has come since
            mask = asked.chosen(view.known)
        rows = mask[facet]
        slots.append(found["slot"].astype(np.int64)[rows])
        facets.append(facet[rows])
        values.append([found[cell].astype(np.float64)[rows] for cell in cells])
    columns = zip(*values, strict=True) if values else [()] * len(cells)
    return Counts(
        start, step, (end - start) // step, _all(slots, np.int64), _all(facets, np.int64),
        {cell: _all(list(column), np.float64) for cell, column in zip(cells, columns, strict=True)},
        view.known.facets.table(),
    )  # fmt: skip


def parts(view: View, asked: Question, step: int, start: int, end: int) -> list[tuple[str, int, int]]:
    """From which table which part of a window is read: `spans`, or a rollup's seconds."""
    if asked.keys or step % FINE:
        return [("spans", start, end)]

    def clip(at: int) -> int:
        return min(max(at, start), end)

    hours = clip(view.slices.edge(HOUR, start, end)) if step % HOUR == 0 else start
    closed = max(hours, clip(view.slices.edge(CLOSED_BY, hours, end)))
    found = [(str(HOUR), start, hours), (_source(min(step, CLOSED_BY)), hours, closed), ("spans", closed, end)]
    return [part for part in found if part[1] < part[2]]


def _source(step: int) -> str:
    """The coarsest counts that a step is a multiple of, or `spans`."""
    return next((str(level) for level in reversed(LEVELS) if step % level == 0), "spans")


def _kept(view: View, step: int, asked: Question) -> bool:
    """Whether what a step is counted from is there since the window's start: finer counts go earlier than others."""
    name = _source(step)
    if asked.keys or name == str(HOUR):
        return True
    wider = next(level for level in LEVELS if name == "spans" or level > int(name))
    floor, older = view.floors.get(name, 0), view.floors.get(str(wider), 0)
    return not older or not floor or asked.window.start >= floor or floor - older < wider


def _read(
    view: View, asked: Question, source: str, first: int, last: int, start: int, step: int, cells: tuple[str, ...]
) -> dict[str, Any]:
    million = 1_000_000
    if source != "spans":
        sums = ", ".join(f"sum({cell}) AS {cell}" for cell in cells)
        query = (
            f"SELECT (start - $1) // $2 AS slot, facet, {sums} FROM rollup_{int(source)}"
            " WHERE start >= $3 AND start < $4 GROUP BY slot, facet"
        )
        found: dict[str, Any] = view.cursor.execute(query, [start, step, first, last]).fetchnumpy()
        return found
    sums = ", ".join(f"{_OF_SPAN[cell]} AS {cell}" for cell in cells)
    some = f" AND key IN ({', '.join(f'${at}' for at in range(5, 5 + len(asked.keys)))})" if asked.keys else ""
    query = (
        f"SELECT (start_us - $1) // $2 AS slot, facet, {sums} FROM spans"
        f" WHERE start_us >= $3 AND start_us < $4{some} GROUP BY slot, facet"
    )
    values: list[Any] = [start * million, step * million, first * million, last * million]
    found = view.cursor.execute(query, [*values, *asked.keys]).fetchnumpy()
    return found


def _all(columns: list[Any], kind: Any) -> Any:
    return np.concatenate(columns) if columns else np.empty(0, kind)
