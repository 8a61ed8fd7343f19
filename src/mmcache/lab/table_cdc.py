"""Table `cdc`: how soon every cache process hears that a row has changed, and what each stage's death does (E1).

The way of a change is the real one: a commit in PostgreSQL, Debezium, a Kafka-protocol broker, `mmcache sync`, a Valkey
cluster, cache processes. What is timed is what callers see: from the commit until the new value is served.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.cdc import phases
from mmcache.lab.cdc.phases import WINDOW_SECONDS, Phase
from mmcache.lab.cdc.pipe import READERS, Pipe
from mmcache.lab.cdc.stages import missing
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.model.errors import AssetError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P99_TARGET_MS, P99_PUBLISHED_MS = 200.0, 187.0
WINDOW_PUBLISHED_SECONDS = 1.32
FULL = {50: 1_500, 150: 6_000, 300: 12_500}
"""Writes a second → writes."""
QUICK = {50: 200, 150: 450}
QUICK_KILLS = ("connector", "sync")
KILL_RATE, KILL_WRITES, QUICK_KILL_WRITES = 100, 1_500, 900
_WARM_UP = 300


class CDCTable(Table):
    """Seconds from a commit to agreement, in quiet and while every stage dies in turn."""

    name: ClassVar[str] = "cdc"
    title: ClassVar[str] = (
        "Change data capture: from a commit to every cache process, while every stage is killed in turn"
    )
    remark: ClassVar[str] = (
        "Times run from when the writer's commit was confirmed to when a caller in a cache process was served the new "
        "value, which includes its look at the cache every 2 ms and its load of the row. Percentiles are a process's, "
        "the spread is over the processes. `window`: from the first process that serves a row's new value to the last, "
        "the longest of all rows. `stale`: old values served more than 1.5 s after the commit, or after the killed "
        "stage was back, whichever is later. `meanwhile`: old values served while it was away, and `oldest` how "
        "old they were: nobody can hear then what the database says. The mapping says `stale_after: 3`, which bounds "
        "that: all tables move when nothing was heard for 3 s; and 5 s after the last word of a runner no rows are "
        "served. `healed`: from when the stage itself says that it "
        "serves until all that was committed before is new in all processes. `twice`: what a killed connector sends "
        "again; it changes nothing. `valkey`: the primary that holds the news dies, its replica takes over, it comes "
        "back as a replica. `valkey-emptied`: it is back before anybody noticed, and has forgotten everything. "
        "`broker`: its log is gone with it, so all that rests on its tables is dropped once. Thirteen processes share "
        "two cores here and take 4 to 6 ms of them a write, so that queues form from 300 writes a second on (from 150 "
        "where the machine does something else, too: its load is stated), and that is what the 99 % shows. Where "
        "`healed` is long and `oldest` is not, a read waited that long, and was not served what is old. The published "
        "figures are 187 ms and 1.32 s; the design that they are from gives no rate of writes."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """All phases, once. Raises `AssetError` where Java, PostgreSQL or a package is missing."""
        if (why := missing()) is not None:
            raise AssetError(why)
        rates, before = QUICK if quick else FULL, os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="mmcache-cdc-") as folder:
            Path(folder).chmod(0o755)
            with Pipe(Path(folder), _WARM_UP + sum(rates.values())) as pipe:
                steady, killed = _phases(pipe, rates, quick, progress)
        rows = [row for phase in steady for row in steady_rows(phase)]
        rows += [row for phase in killed for row in killed_rows(phase)]
        return Result(
            self.name, quick, tuple(seeds),
            (
                "PostgreSQL with logical decoding, Debezium 3.6.3 in a Kafka Connect worker, a Kafka-protocol broker, "
                f"`mmcache sync run`, a Valkey cluster of 3 + 3, {READERS} cache processes, each with a disk folder: "
                f"{READERS + 10} processes on loopback, all on one machine",
                f"{sum(rates.values())} writes, each a transaction: "
                + ", ".join(f"{count} at {rate} a second" for rate, count in rates.items())
                + f"; then {len(killed)} times {len(killed[0].rows)} while a stage is killed and started again",
                f"every {phases.EVERY}th row is in every cache, and read until its new value comes, every 2 ms at most",
                f"load average of the machine before and after: {before:.1f} and {os.getloadavg()[0]:.1f} on "
                f"{os.cpu_count()} cores",
            ),
            (
                "the model is a stand-in that costs nothing; rows hold a number and a short text",
                "the broker keeps its log in memory, so its death loses it; a durable Kafka was not to be had here",
            ),
            tuple(rows),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Left: latencies by rate. Right: how long each stage's death was felt."""
        found = {row.id: row for row in result.rows}
        rates = sorted({int(name.split("/")[0].removeprefix("rate-")) for name in found if name.startswith("rate-")})
        kills = [name.split("/")[1] for name in found if name.startswith("kill/") and name.endswith("/healed")]
        figure.set_size_inches(9, 3.2)
        left, right = figure.subplots(1, 2)
        for measure, colour in (("p50", "#8793a6"), ("p99", "#2f7d5b"), ("max", "#b5482f")):
            heights = [found[f"rate-{rate}/{measure}"].ours or 0.0 for rate in rates]
            left.plot(range(len(rates)), heights, "o-", color=colour, label=measure)
        left.axhline(P99_TARGET_MS, color="black", linewidth=0.8, linestyle=":", label="target of p99")
        left.set_xticks(range(len(rates)), [str(rate) for rate in rates])
        left.set_xlabel("writes a second")
        left.set_ylabel("commit → new value served, ms")
        left.set_yscale("log")
        left.legend(frameon=False, fontsize=8)
        away = [found[f"kill/{name}/away"].ours or 0.0 for name in kills]
        healed = [found[f"kill/{name}/healed"].ours or 0.0 for name in kills]
        right.barh(range(len(kills)), away, color="#8793a6", label="away")
        right.barh(range(len(kills)), healed, left=away, color="#2f7d5b", label="until all is new, everywhere")
        right.set_yticks(range(len(kills)), kills)
        right.invert_yaxis()
        right.set_xlabel("seconds")
        right.legend(frameon=False, fontsize=8)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)


def _phases(
    pipe: Pipe, rates: dict[int, int], quick: bool, progress: Progress
) -> tuple[list[Phase], list[Phase]]:  # fmt: skip
    kinds = phases.stages(pipe)
    chosen = [name for name in kinds if name in QUICK_KILLS] if quick else list(kinds)
    total, done = len(rates) + len(chosen), 0
    phases.run(pipe, "warm-up", range(1, _WARM_UP + 1), 1, 100)  # Java compiles, connections open
    first, steady = _WARM_UP + 1, []
    for rate, count in rates.items():
        progress("phases", done, total)
        steady.append(phases.run(pipe, f"rate-{rate}", range(first, first + count), 2, rate))
        first, done = first + count, done + 1
    killed = []
    for version, name in enumerate(chosen, 3):
        progress("phases", done, total)
        count = QUICK_KILL_WRITES if quick else KILL_WRITES
        killed.append(phases.run(pipe, name, range(1, count + 1), version, KILL_RATE, kinds[name]))
        done += 1
    progress("phases", total, total)
    return steady, killed


def steady_rows(phase: Phase) -> list[Row]:
    """Of a phase in which nothing dies; percentiles are of each process."""

    def of(share: float) -> list[float]:
        return [1e3 * percentile(phase.latencies(number), share) for number in range(len(phase.seen))]

    name, windows = phase.name, phase.windows()
    words = f"commit → new value served, {phase.rate} writes/s"
    return [
        Row.of(f"{name}/p50", f"{words}: median", "ms", "lower", of(0.5)),
        Row.of(f"{name}/p99", f"{words}: 99 %", "ms", "lower", of(0.99), target=P99_TARGET_MS,
               published=P99_PUBLISHED_MS),
        Row.of(f"{name}/max", f"{words}: longest", "ms", "lower", of(1.0)),
        Row.of(f"{name}/window", "first to last process, longest", "s", "lower", max(windows), target=WINDOW_SECONDS,
               published=WINDOW_PUBLISHED_SECONDS),
        *_faults(name, phase),
    ]  # fmt: skip


def killed_rows(phase: Phase) -> list[Row]:
    """Of a phase in which a stage dies."""
    assert phase.killed is not None
    assert phase.back is not None
    name, killed, back = f"kill/{phase.name}", phase.killed, phase.back
    meanwhile = sum(1 for _, asked in phase.old if killed < asked < back + WINDOW_SECONDS)
    return [
        Row.of(f"{name}/away", f"{phase.name}: killed to serving again", "s", "lower", back - killed),
        Row.of(f"{name}/healed", "then until all made meanwhile is new everywhere", "s", "lower", phase.healed(),
               target=WINDOW_SECONDS),
        Row.of(f"{name}/twice", "events that the broker held again", "events", "lower", float(phase.twice)),
        Row.of(f"{name}/loads", f"rows loaded, of {phase.reads} reads; {len(phase.watched)} changed, {READERS} caches",
               "reads", "lower", float(phase.loads)),
        Row.of(f"{name}/oldest", "the oldest of them, after its row changed", "s", "lower", phase.oldest()),
        Row.of(f"{name}/meanwhile", "old values served meanwhile", "reads", "lower", float(meanwhile)),
        *_faults(name, phase),
    ]  # fmt: skip


def _faults(name: str, phase: Phase) -> list[Row]:
    return [
        Row.of(f"{name}/stale", f"old values served after the window, of {phase.reads} reads", "reads", "lower",
               float(len(phase.stale())), target=0.0),
        Row.of(f"{name}/left", "rows old in some process at the end", "rows", "lower", float(phase.left), target=0.0),
        Row.of(f"{name}/wrong", "values of another row", "reads", "lower", float(phase.wrong), target=0.0),
    ]  # fmt: skip
