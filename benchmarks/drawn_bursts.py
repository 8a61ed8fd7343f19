"""The burst detector on streams that are drawn: what its constants were chosen on. None is in table `bursts`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mmcache.lab.bench import main
from mmcache.lab.bursts_development import MOVING, STEADY, drawn
from mmcache.lab.bursts_rules import Plain, Rule
from mmcache.lab.bursts_runs import STEP, watch
from mmcache.lab.bursts_truth import many, plant
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces.arrivals import DAY_SECONDS, Arrivals
from mmcache.lab.traces.trace import Floats
from mmcache.scale.bursts import BurstDetector
from mmcache.scale.noise import WIDTHS
from mmcache.scale.spec import BurstSpec

LEARNS_SECONDS = 7200.0


class Ours:
    """The product's own; or with some of its widths alone."""

    def __init__(self, widths: dict[int, float]) -> None:
        self.detector = type("Some", (BurstDetector,), {"widths": widths})(BurstSpec())

    def observe(self, at: float, rate: float) -> bool:
        """See `Rule`."""
        return bool(self.detector.observe(at, rate).burst)


def false_alarms(rule: Rule, counts: Floats) -> float:
    """A day, where every alarm is one."""
    seen = watch(rule, counts)
    return seen.false_alarms([]) / (seen.seconds / DAY_SECONDS)


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
            cried: dict[str, list[float]] = {"ours": [], "plain": []}
            found: dict[str, list[float]] = {"ours": [], "plain": []}
            for seed in seeds:
                stream = drawn(name, seed, days * DAY_SECONDS)
                counts = stream.counts(STEP)
                bursts = many(LEARNS_SECONDS, stream.seconds, seed)
                planted = Arrivals(name, plant(stream, bursts, seed), stream.seconds).counts(STEP)
                for who in cried:
                    rules: list[Rule] = [Ours(WIDTHS) if who == "ours" else Plain(STEP) for _ in range(2)]
                    cried[who].append(false_alarms(rules[0], counts))
                    seen = watch(rules[1], planted)
                    found[who] += [100.0 * (seen.delay(one) is not None) for one in bursts if not seen.on(one)]
                for wide in WIDTHS if name in STEADY else ():
                    alone[wide].append(false_alarms(Ours({wide: WIDTHS[wide]}), counts))
            for who in cried:
                rows.append(Row.of(f"{name}/false/{who}", f"false alarms, {who}", "a day", "lower", cried[who]))
                share = sum(found[who]) / len(found[who]) if found[who] else None
                rows.append(Row(f"{name}/found/{who}", f"planted bursts found, {who}", "%", "higher", share))
            progress(name, place + 1, len(STEADY) + len(MOVING))
        for wide, days_cried in alone.items():
            mean = sum(days_cried) / len(days_cried)
            words = f"false alarms by {wide} × 60 s alone, mean of the {len(STEADY)} streams of constant rate"
            rows.append(Row(f"alone/{wide}", words, "a day", "lower", mean))
        simulated = (f"all of it: {days} days of each stream, time is virtual",)
        return Result(self.name, quick, tuple(seeds), ("the detector is the product's own",), simulated, tuple(rows))


if __name__ == "__main__":
    sys.exit(main(DrawnBursts()))
