"""What the outcomes of the arena come to: gaps to the best rival, averages, and the rows that say so."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mmcache.lab.arena import BELADY, BOUND, HELD_OUT, OFFLINE, OURS, RIVAL, TUNED, Outcome
from mmcache.lab.table import Row

NOISE = 1.0
"""Points: a smaller difference is none."""

Saved = Mapping[str, Sequence[float]]
"""Per cent of the cost that each contender saved, a figure a seed."""


class Standings:
    """Outcomes by cell and part. Percentages are of the cost saved; a gap is in points."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = sorted(outcomes, key=lambda o: (o.part, o.cell.name, o.cell.seed))
        self.kinds = {outcome.contender: outcome.kind for outcome in self.outcomes}
        self._saved: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        for one in self.outcomes:
            self._saved[one.part, one.cell.name][one.contender][one.cell.seed] = 100 * one.saved

    def cells(self, part: str) -> list[str]:
        """Names of the cells, by trace."""
        return [name for where, name in sorted(self._saved, key=lambda w: _order(w[1])) if where == part]

    def saved(self, part: str, cell: str) -> dict[str, list[float]]:
        """What each contender saved there, by seed."""
        found = self._saved[part, cell]
        return {name: [values[seed] for seed in sorted(values)] for name, values in found.items()}

    def named(self, kind: str) -> list[str]:
        """Contenders of a kind."""
        return [name for name, its in self.kinds.items() if its == kind]

    def gaps(self, part: str, cell: str, ours: str) -> list[float]:
        """`ours` less the best rival, a figure a seed; each seed has its own best rival."""
        saved = self.saved(part, cell)
        best = [max(of_seed) for of_seed in zip(*(saved[name] for name in self.named(RIVAL)), strict=True)]
        return [mine - other for mine, other in zip(saved[ours], best, strict=True)]

    def best(self, part: str, cell: str, kind: str = RIVAL) -> tuple[str, float]:
        """The contender of `kind` that saved most, as the mean of the seeds, and what it saved."""
        saved = self.saved(part, cell)
        means = {name: _mean(saved[name]) for name in self.named(kind) if name in saved}
        name = max(means, key=means.__getitem__)
        return name, means[name]

    def average(self, part: str, contender: str) -> float:
        """Over cells of the mean over seeds."""
        return _mean([_mean(self.saved(part, cell)[contender]) for cell in self.cells(part)])

    def rows(self, ours: str) -> list[Row]:
        """The summary of `ours`, then a row a cell and part, then everybody's average."""
        return [*self._summary(ours), *self._cells(ours), *self._averages()]

    def _summary(self, ours: str) -> list[Row]:
        rows = []
        for part in (HELD_OUT, TUNED):
            gaps = {cell: _mean(self.gaps(part, cell, ours)) for cell in self.cells(part)}
            worst = min(gaps, key=gaps.__getitem__)
            champion = max(self.named(RIVAL), key=lambda name: self.average(part, name))
            lead = self.average(part, ours) - self.average(part, champion)
            shares = [
                _mean(saved[ours]) / _mean(saved[BOUND])
                for cell in self.cells(part)
                if _mean((saved := self.saved(part, cell))[BOUND])
            ]
            rows += [
                Row.of(
                    f"{part}/{ours}/worst", f"{ours} less the best rival, in its worst cell ({worst})", "points",
                    "higher", gaps[worst], target=-NOISE,
                ),
                Row.of(
                    f"{part}/{ours}/within", f"cells of {len(gaps)} where {ours} is first or within {NOISE:g} point",
                    "cells", "higher", sum(gap >= -NOISE for gap in gaps.values()), target=len(gaps),
                ),
                Row.of(
                    f"{part}/{ours}/gap", f"{ours} less the best rival of each cell, mean", "points", "higher",
                    _mean(list(gaps.values())),
                ),
                Row.of(
                    f"{part}/{ours}/lead", f"mean of all cells, {ours} less the best single rival ({champion})",
                    "points", "higher", lead, target=0.0,
                ),
                Row.of(
                    f"{part}/{ours}/optimum", "cost saved, of what no cache can exceed, mean of cells", "%", "higher",
                    100 * _mean(shares),
                ),
            ]  # fmt: skip
        return rows

    def _cells(self, ours: str) -> list[Row]:
        rows = []
        for part in (HELD_OUT, TUNED):
            for cell in self.cells(part):
                saved = self.saved(part, cell)
                rival, most = self.best(part, cell)
                limit = BELADY if BELADY in saved else BOUND
                words = (
                    f"{ours} saves {_mean(saved[ours]):.1f} % of the cost; {rival} {most:.1f}, "
                    f"LRU {_mean(saved['lru']):.1f}, {'optimum' if limit == BELADY else 'at most'} "
                    f"{_mean(saved[limit]):.1f}"
                )
                gaps = self.gaps(part, cell, ours)
                rows.append(Row.of(f"{cell}/{part}", words, "points", "higher", gaps, target=-NOISE))
        return rows

    def _averages(self) -> list[Row]:
        means = {name: self.average(HELD_OUT, name) for name, kind in self.kinds.items() if kind != OFFLINE}
        means[BOUND] = self.average(HELD_OUT, BOUND)
        return [
            Row.of(f"{HELD_OUT}/mean/{name}", f"cost saved, mean of cells ({self.kinds[name]})", "%", "higher", mean)
            for name, mean in sorted(means.items(), key=lambda item: -item[1])
        ]

    def csv(self) -> str:
        """All outcomes, a line each."""
        page = io.StringIO()
        out = csv.writer(page, lineterminator="\n")
        out.writerow(
            ("trace", "costs", "seed", "memory_percent", "part", "contender", "kind", "object_miss_ratio",
             "byte_miss_ratio", "cost_saved")
        )  # fmt: skip
        for one in sorted(self.outcomes, key=lambda o: (_order(o.cell.name), o.cell.seed, o.part, -o.saved)):
            ratios = ("" if one.object_misses is None else f"{one.object_misses:.4f}",
                      "" if one.byte_misses is None else f"{one.byte_misses:.4f}", f"{one.saved:.4f}")  # fmt: skip
            cell = one.cell
            out.writerow((cell.trace, cell.model, cell.seed, cell.percent, one.part, one.contender, one.kind, *ratios))
        return page.getvalue()

    def matrix(self, part: str) -> tuple[list[str], list[str], list[list[float]]]:
        """(contenders, cells, points behind the best of all that know no future [contender][cell])."""
        names = sorted(self.named(OURS) + self.named(RIVAL), key=lambda name: -self.average(part, name))
        cells = self.cells(part)
        means = [[_mean(self.saved(part, cell)[name]) for cell in cells] for name in names]
        best = [max(column) for column in zip(*means, strict=True)]
        return names, cells, [[top - mine for mine, top in zip(row, best, strict=True)] for row in means]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _order(cell: str) -> tuple[str, str, int]:
    trace, model, percent = cell.split("/")
    return model, trace, int(percent.rstrip("%"))
