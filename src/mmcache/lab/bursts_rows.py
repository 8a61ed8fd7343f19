"""The rows of table `bursts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mmcache.lab.bursts_rules import OURS, WORDS
from mmcache.lab.bursts_sizing import WORDS as WAYS
from mmcache.lab.bursts_sizing import Cost
from mmcache.lab.bursts_truth import FACTORS, LENGTHS
from mmcache.lab.table import Row, percentile

MOST_FALSE = 1.0
"""A day."""
FEWEST_FOUND = 95.0
"""%."""
FEWEST_APART = 5
"""Planted bursts a seed that came while no alarm was on, before a share of them is told."""
HIGHEST = max(FACTORS)
LATEST = 60.0
"""Seconds: the window."""


@dataclass(frozen=True)
class Planted:
    """What became of a burst that was planted."""

    factor: int
    length: float
    delay: float | None
    """Seconds until an alarm began by it; None: none did."""
    on: bool
    """The alarm was on before."""
    chance: bool
    """In the same time of the stream with nothing planted, an alarm began, too."""

    @property
    def found(self) -> bool:
        """By an alarm that began by it. Where one was on already, nothing can be said."""
        return not self.on and self.delay is not None


@dataclass(frozen=True)
class Found:
    """By one rule, on one stream and seed."""

    false_alarms: int
    days: float
    changes: float
    """Of its mind, a day."""
    own: int
    """Bursts of the stream's own, by hindsight."""
    own_found: int
    first_day: int | None = None
    """False alarms while no day is known; None: the stream is shorter."""
    planted: list[Planted] = field(default_factory=list)


Founds = Mapping[str, Sequence[Found]]
"""By rule, one a seed."""


def found_rows(stream: str, found: Founds, *, by_sort: bool) -> list[Row]:
    """Bursts found, false alarms, delays, by rule; ours by sort of burst."""
    rows: list[Row] = []
    for name, runs in found.items():
        apart = [one for run in runs for one in run.planted if not one.on]
        some = [100 * _share([one.found for one in run.planted if not one.on]) for run in runs]
        words, target = f"planted bursts found, {WORDS[name]}", FEWEST_FOUND if name == OURS else None
        if len(apart) < FEWEST_APART * len(runs):
            rows.append(
                Row(
                    f"{stream}/found/{name}",
                    f"{words}: in too few was no alarm on before",
                    "%",
                    "higher",
                    None,
                    target=target,
                )
            )
        else:
            rows.append(Row.of(f"{stream}/found/{name}", words, "%", "higher", some, target=target))  # fmt: skip
    for name, runs in found.items():
        if sum(not one.on for run in runs for one in run.planted) >= FEWEST_APART * len(runs):
            lucky = [100 * _share([one.chance for one in run.planted if not one.on]) for run in runs]
            words = f"of those, as many would have been found with nothing planted, {WORDS[name]}"
            rows.append(Row.of(f"{stream}/chance/{name}", words, "%", "lower", lucky))
    for name, runs in found.items():
        cried = [run.false_alarms / run.days for run in runs]
        rows.append(Row.of(f"{stream}/false/{name}", f"false alarms, {WORDS[name]}", "a day", "lower", cried,
                           target=MOST_FALSE if name == OURS else None))  # fmt: skip
    for name, runs in found.items():
        delays = [one.delay for run in runs for one in run.planted if one.delay is not None and not one.on]
        if delays:
            rows.append(Row.of(f"{stream}/delay/{name}", f"median delay, {WORDS[name]}", "s", "lower", delays))
            rows.append(Row.of(f"{stream}/delay-p95/{name}", f"P95 of the delay, {WORDS[name]}", "s", "lower",
                               percentile(delays, 0.95), target=LATEST if name == OURS else None))  # fmt: skip
    for name, runs in found.items():
        before = [100 * _share([one.on for one in run.planted]) for run in runs]
        rows.append(Row.of(f"{stream}/on/{name}", f"planted bursts that came while an alarm was on, {WORDS[name]}", "%",
                           "lower", before))  # fmt: skip
    for name, runs in found.items():
        rows.append(Row.of(f"{stream}/changes/{name}", f"alarms begun and ended, {WORDS[name]}", "a day", "lower",
                           [run.changes for run in runs]))  # fmt: skip
    for name, runs in found.items():
        first = [run.first_day for run in runs if run.first_day is not None]
        if first:
            rows.append(Row.of(f"{stream}/false-first-day/{name}", f"false alarms while no day is known, {WORDS[name]}",
                               "a day", "lower", first))  # fmt: skip
    return rows + (_by_sort(stream, found[OURS]) if by_sort else [])


def _by_sort(stream: str, runs: Sequence[Found]) -> list[Row]:
    rows = []
    for factor in FACTORS:
        for length in LENGTHS:
            alike = [p for run in runs for p in run.planted if (p.factor, p.length) == (factor, length) and not p.on]
            if alike:
                rows.append(Row.of(f"{stream}/found-x{factor}-{length / 60:g}min", f"of those ×{factor} for "
                                   f"{length / 60:g} minutes found, ours ({len(alike)} of them)", "%", "higher",
                                   100 * _share([one.found for one in alike])))  # fmt: skip
    return rows


def own_rows(stream: str, found: Founds) -> list[Row]:
    """The stream's own bursts, where it has any."""
    many = sum(run.own for run in found[OURS])
    words = f"bursts of its own found, {many} seen in hindsight over all seeds"
    return [
        Row.of(f"{stream}/own/{name}", f"{words}, {WORDS[name]}", "%", "higher",
               100 * sum(run.own_found for run in runs) / many)
        for name, runs in found.items() if many
    ]  # fmt: skip


def lack_rows(stream: str, lacks: Sequence[Mapping[str, tuple[float, float]]]) -> list[Row]:
    """Of planted bursts of `HIGHEST` times: what came above what the shards could carry, by seed."""
    words = f"of the requests in planted bursts of ×{HIGHEST} came above what could be carried"
    return [
        Row.of(f"{stream}/refused-x{HIGHEST}/{name}", f"{words}, {WAYS[name]}", "%", "lower",
               [100 * one[name][0] / one[name][1] for one in lacks])
        for name in lacks[0]
    ]  # fmt: skip


def cost_rows(costs: Sequence[Mapping[str, Cost]]) -> list[Row]:
    """What the ways to size cost and lack."""
    rows = []
    for what, words, unit in (
        ("hours", "shard-hours a day", "h"), ("over", "of the time more was asked than could be carried", "%"),
        ("refused", "of the requests came above what could be carried", "%"), ("changes", "shards that came or went",
         "a day"),
    ):  # fmt: skip
        for name in costs[0]:
            values = [_figure(one[name], what) for one in costs]
            rows.append(Row.of(f"sized/{what}/{name}", f"{words}, {WAYS[name]}", unit, "lower", values))
    return rows


def _figure(one: Cost, what: str) -> float:
    return {"hours": one.shard_hours_a_day, "over": 100 * one.over, "refused": 100 * one.refused,
            "changes": one.changes_a_day}[what]  # fmt: skip


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 0.0
