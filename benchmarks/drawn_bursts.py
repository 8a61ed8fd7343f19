"""Rules for bursts on streams that are drawn: what constants were chosen on. None is in table `bursts`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mmcache.lab.bench import main
from mmcache.lab.bursts_development import MOVING, STEADY, drawn
from mmcache.lab.bursts_rules import Ours, Plain, Rule
from mmcache.lab.bursts_runs import GRACE, JOINED, STEP, watch
from mmcache.lab.bursts_truth import Burst, many, plant
from mmcache.lab.bursts_wide import WIDTHS, Wide
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces.arrivals import DAY_SECONDS, Arrivals
from mmcache.lab.traces.trace import Floats

LEARNS_SECONDS = 7200.0


RULES: Mapping[str, Callable[[], Rule]] = {"ours": Ours, "wide": lambda: Wide(STEP), "plain": lambda: Plain(STEP)}


def false_alarms(rule: Rule, counts: Floats) -> float:
    """A day, where every alarm is one."""
    seen = watch(rule, counts)
    return seen.false_alarms([]) / (seen.seconds / DAY_SECONDS)


def begins(high: npt.NDArray[np.bool_]) -> Floats:
    """Seconds at which an alarm begins: it is over after `JOINED` seconds without."""
    at = (np.flatnonzero(high) + 1) * STEP
    found: Floats = at[np.diff(at, prepend=-JOINED) >= JOINED].astype(np.float64)
    return found


def hindsight(counts: Floats, planted: Floats, bursts: Sequence[Burst], days: float) -> float:
    """% found by who knows the mean, and the threshold that gives one false alarm a day on this very stream, never
    below 1.5 times the mean; of the means of 1, 3, 5 and 10 minutes the one that finds most: about what is possible."""
    best, usual = 0.0, counts.mean()
    for minutes in (1, 3, 5, 10):
        weights = np.full(int(minutes * 60 / STEP), STEP / (minutes * 60))
        clean, seen = (np.convolve(one, weights)[: len(one)] for one in (counts, planted))
        low, high = 1.5 * usual, 1.5 * usual + clean.max()
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if len(begins(clean > middle)) <= days else (middle, high)
        at, alarms = np.flatnonzero(seen > high) * STEP, begins(seen > high)
        apart = [one for one in bursts if not ((at > one.start - JOINED) & (at <= one.start)).any()]
        found = [((alarms > one.start) & (alarms <= one.end + GRACE)).any() for one in apart]
        best = max(best, 100 * sum(found) / len(found)) if found else best
    return best


class DrawnBursts(Table):
    """Planted bursts found and false alarms, by kind of stream."""

    name = "bench-drawn_bursts"
    title = "What does the burst detector find, and cry for nothing, where arrivals come in clusters of all kinds?"
    default_seeds = (0, 1)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        days = 1 if quick else 2
        rows: list[Row] = []
        alone: dict[int, list[float]] = {wide: [] for wide in WIDTHS}
        for place, name in enumerate([*STEADY, *MOVING]):
            cried: dict[str, list[float]] = {who: [] for who in RULES}
            found: dict[str, list[float]] = {who: [] for who in RULES}
            possible: list[float] = []
            for seed in seeds:
                stream = drawn(name, seed, days * DAY_SECONDS)
                counts = stream.counts(STEP)
                bursts = many(LEARNS_SECONDS, stream.seconds, seed)
                planted = Arrivals(name, plant(stream, bursts, seed), stream.seconds).counts(STEP)
                for who, rule in RULES.items():
                    cried[who].append(false_alarms(rule(), counts))
                    seen = watch(rule(), planted)
                    found[who] += [100.0 * (seen.delay(one) is not None) for one in bursts if not seen.on(one)]
                if name in STEADY:
                    possible.append(hindsight(counts, planted, bursts, days))
                for wide in WIDTHS if name in STEADY else ():
                    alone[wide].append(false_alarms(Wide(STEP, {wide: WIDTHS[wide]}), counts))
            for who in cried:
                rows.append(Row.of(f"{name}/false/{who}", f"false alarms, {who}", "a day", "lower", cried[who]))
                share = sum(found[who]) / len(found[who]) if found[who] else None
                rows.append(Row(f"{name}/found/{who}", f"planted bursts found, {who}", "%", "higher", share))
            if possible:
                words = "planted bursts found, who has the mean and the best threshold from hindsight"
                rows.append(Row.of(f"{name}/found/hindsight", words, "%", "higher", possible))
            progress(name, place + 1, len(STEADY) + len(MOVING))
        for wide, days_cried in alone.items():
            mean = sum(days_cried) / len(days_cried)
            words = f"false alarms by {wide} × 60 s alone, mean of the {len(STEADY)} streams of constant rate"
            rows.append(Row(f"alone/{wide}", words, "a day", "lower", mean))
        simulated = (f"all of it: {days} days of each stream, time is virtual",)
        return Result(self.name, quick, tuple(seeds), ("the detector is the product's own",), simulated, tuple(rows))


if __name__ == "__main__":
    sys.exit(main(DrawnBursts()))
