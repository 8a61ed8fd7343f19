"""Table `decay`: which law reuse follows as blocks age, and whether the fit can be believed (C5).

First on logs with a known law: is it found, is its half-life, do 95 % intervals hold it 95 times in 100, and are logs
without one called so. Then on published traces, by age since the first and since the last use of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.lab import decay_logs
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces.published import PUBLISHED, read
from mmcache.model.errors import AssetError
from mmcache.settings import traces_folder
from mmcache.ttl.ages import Ages, Since
from mmcache.ttl.decay import DecayFit, fit_decay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PUBLISHED_R2 = {"exponential": 0.921, "power": 0.896}
PUBLISHED_HOURS = 3.7
IN_SECONDS = ("mooncake", "cloudphysics")
"""The published traces that carry times; ages in the others are counted in requests."""
QUICK, FULL = (12, 1000), (40, 2000)
"""Logs drawn a law and seed, and blocks in each."""
SINCE: tuple[Since, ...] = ("first", "last")
LARGEST_ERROR = 5.0
"""Per cent that a known half-life may be missed by, in the median."""
LEAST_COVERAGE = 90.0
"""Per cent of 95 % intervals that hold the truth: 95 less what so few logs can tell apart."""
LEAST_REFUSED = 95.0


@dataclass(frozen=True)
class Curve:
    """What the plot needs."""

    name: str
    unit: str
    fit: DecayFit


class DecayTable(Table):
    """Half-life, R², intervals, and when there is no law."""

    name: ClassVar[str] = "decay"
    title: ClassVar[str] = "Decay law: exponential, power, or neither, on logs with a known law and on published traces"
    remark: ClassVar[str] = (
        "The published figures come from logs that are not public; no trace here repeats them, and the drawn logs only "
        "show that such a law would be found. Rates are uses per block-second watched: plain counts by age fall even "
        "where use is steady, because late in a log nobody can be old. R² is that of log rates in bins of equal width "
        "in log age. A fit is refused (`neither`) below an R² of 0.8, or where a parabola explains over 3 % more. By "
        "age since the last use, reuse of web pages and web objects falls as a power law over five decades, and never "
        "exponentially: a half-life would be wrong at both ends. Blocks of conversations (mooncake) come back after "
        "about a minute, the next turn, so no falling law fits; nor block I/O, which has repeated scans. By age since "
        "the first use none fits, with old favourites as a floor."
    )

    def __init__(self) -> None:
        self._curves: list[Curve] = []

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Fit. `seeds` alter the drawn logs."""
        rows = [row for law in decay_logs.AGES for row in self._known(law, quick, seeds, progress)]
        read_traces = list[str]()
        for name in PUBLISHED:
            if quick and name == "w106":
                continue
            try:
                trace = read(name, traces_folder())
            except AssetError:
                continue
            progress(name, len(read_traces), len(PUBLISHED))
            timed = name in IN_SECONDS
            times = trace.times if timed else np.arange(len(trace.ids), dtype=np.float64)
            rows += [row for since in SINCE for row in self._traced(name, times, trace.ids, since, timed)]
            read_traces.append(f"{name}: {PUBLISHED[name].source}")
        logs = (
            f"drawn logs of 48 h with a law of half-life {PUBLISHED_HOURS} h, exponent {decay_logs.EXPONENT}, or none"
        )
        none = "no published trace was found, so every log is drawn; set MMCACHE_TRACES to their folder"
        return Result(
            self.name, quick, tuple(seeds),
            ("the fit that the cache's deciders are given", *read_traces),
            (logs, *([] if read_traces else [none])),
            tuple(rows),
        )  # fmt: skip

    def _known(self, law: str, quick: bool, seeds: Sequence[int], progress: Progress) -> Iterator[Row]:
        repeats, blocks = QUICK if quick else FULL
        errors, held, found, r2 = list[float](), list[bool](), list[bool](), list[float]()
        for number in range(repeats * len(seeds)):
            progress(f"drawn {law}", number, repeats * len(seeds))
            ages = decay_logs.draw(law, 1000 * seeds[number % len(seeds)] + number, blocks)
            fit = fit_decay(ages, replicates=100 if law in PUBLISHED_R2 else 0, seed=number)
            if not number:
                self._curves.append(Curve(f"drawn: {law}", "s", fit))
            expected = law if law in PUBLISHED_R2 else "neither"
            found.append(fit.law == expected)
            if law not in PUBLISHED_R2:
                continue
            r2.append(fit.r2)
            if fit.law == law and fit.half_life_seconds is not None and fit.ci is not None:
                truth = decay_logs.true_half_life(law, fit.youngest, fit.oldest)
                errors.append(100 * abs(fit.half_life_seconds / truth - 1))
                held.append(fit.ci[0] <= truth <= fit.ci[1])
        share = 100 * sum(found) / len(found)
        told = "named right" if law in PUBLISHED_R2 else "called neither"
        yield Row.of(f"drawn/{law}/verdict", f"logs {told}", "%", "higher", share, target=LEAST_REFUSED)
        if errors:
            yield Row.of(f"drawn/{law}/r2", "R² of the law", "R²", "higher", r2, published=PUBLISHED_R2[law])
            yield Row.of(
                f"drawn/{law}/error", "half-life missed by", "%", "lower", errors, target=LARGEST_ERROR
            )  # fmt: skip
            yield Row.of(
                f"drawn/{law}/coverage", "95 % intervals that hold the true half-life", "%", "higher",
                100 * sum(held) / len(held), target=LEAST_COVERAGE,
            )  # fmt: skip

    def _traced(self, name: str, times: npt.ArrayLike, ids: npt.ArrayLike, since: Since, timed: bool) -> Iterator[Row]:
        fit = fit_decay(Ages.of(times, ids, since))
        unit = "s" if timed else "requests"
        self._curves.append(Curve(f"{name}, since {since} use: {fit.law}", unit, fit))
        where = f"since the {since} use (verdict: {fit.law})"
        for law, one in (("exponential", fit.exponential), ("power", fit.power)):
            yield Row.of(
                f"{name}/{since}/{law}", f"R² of the {law} law by age {where}", "R²", "higher", one.r2,
                published=PUBLISHED_R2[law],
            )  # fmt: skip
        if fit.half_life_seconds is not None and fit.ci is not None:
            yield Row(
                f"{name}/{since}/half-life", f"half-life {where}; spread: 95 % interval", unit, "higher",
                fit.half_life_seconds, fit.ci, None, PUBLISHED_HOURS * 3600 if timed else None,
            )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Rates by age, and both laws."""
        if not self._curves:
            super().plot(result, figure)
            return
        wide = 3
        high = math.ceil(len(self._curves) / wide)
        figure.set_size_inches(11, 2.6 * high)
        grid = figure.subplots(high, wide, squeeze=False).ravel()
        for axes, curve in zip(grid, self._curves, strict=False):
            _draw(axes, curve)
        for axes in grid[len(self._curves) :]:
            axes.set_axis_off()
        grid[0].legend(frameon=False, fontsize=7)


def _draw(axes: Axes, curve: Curve) -> None:
    fit = curve.fit
    axes.loglog(fit.ages, fit.rates, "o", color="#333333", markersize=3, label="log")
    for law, one, colour in (("exponential", fit.exponential, "#2f7d5b"), ("power", fit.power, "#b5482f")):
        style = "-" if fit.law == law else ":"
        axes.loglog(fit.ages, fit.rate(one, fit.ages), style, color=colour, label=f"{law}, R² {one.r2:.2f}")
    low, high = fit.rates.min(), fit.rates.max()
    axes.set_ylim(low / 3, high * 3)
    axes.set_title(curve.name, fontsize=8)
    axes.set_xlabel(f"age, {curve.unit}", fontsize=7)
    axes.set_ylabel(f"uses per block and {curve.unit.rstrip('s') or 's'}", fontsize=7)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
