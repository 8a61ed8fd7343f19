"""Table `faults`: what befalls a shared tier, and what callers see of it. Real processes, real faults."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.faults_all import FAULTS
from mmcache.lab.faults_trial import TIMEOUT_SECONDS, Fault, Trial, try_out
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import AssetError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("fault", "seed", "phase", "lookups", "hits", "missed", "refused", "errors", "wrong", "stale", "said")
"""Of `faults.csv`; counts by reason are `reason=count` with spaces between."""
_LATE = 1.25
"""Timeouts that the slowest lookup may take: one, and what a busy machine adds."""


class FaultsTable(Table):
    """Errors, wrong values, misses and healing, fault by fault."""

    name: ClassVar[str] = "faults"
    title: ClassVar[str] = "Faults of the shared tier: what callers see, and how it heals"
    remark: ClassVar[str] = (
        "Each trial opens real servers, lets hosts read, compute, replace and invalidate 48 blocks (every eighth of "
        "1.3 MB, in pieces; every twelfth rests on a database row), strikes, and mends. `wrong`: an answer that nobody "
        "stored for that key. `stale`: an answer that the asking host had replaced or invalidated before it asked. "
        "`timeouts`: most that a single lookup cost, counted by the client. `slowest`: the slowest lookup while the "
        "fault lasted, in configured timeouts; one that rests on a row asks for its edition and for its block, which "
        "may be on two nodes, and a lookup of a key whose drop is owed may wait while another thread tries that drop: "
        "so it may take more than one. `heals`: seconds from mending (from the fault, where nobody mends) until every "
        "block is found again. `agrees`: until another host, which keeps blocks in its memory, has nothing that was "
        "replaced or invalidated. The reasons of the misses are in faults.csv, and in docs/reference/failure-modes.md, "
        "which is made from it."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1)

    def __init__(self) -> None:
        self.trials: dict[tuple[str, int], Trial] = {}
        """Of the last run, by fault and seed."""

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """One trial a fault and seed (quick: some faults, one seed). Faults that cannot be had here are left blank."""
        faults = [fault for fault in FAULTS if fault.quick or not quick]
        seeds = tuple(seeds[:1] if quick else seeds)
        rows: list[Row] = []
        absent: list[str] = []
        for done, fault in enumerate(faults):
            trials = []
            for seed in seeds:
                progress(fault.name, done, len(faults))
                try:
                    trials.append(try_out(fault, seed))
                except AssetError as missing:
                    absent.append(f"{fault.name} not run here: {missing}")
                    break
                self.trials[fault.name, seed] = trials[-1]
            rows += rows_of(fault, trials)
        progress("faults", len(faults), len(faults))
        return Result(
            self.name, quick, seeds,
            (
                "valkey-server (TLS: redis-server) processes on loopback, or each in a network namespace of its own",
                "Cache(shared=…) as users get it; SIGKILL, SIGSTOP, cut cables, set clocks, CONFIG SET",
                *absent,
            ),
            ("hosts are caches of one process", "blocks are arrays of one number, computed at once"),
            tuple(rows),
        )  # fmt: skip

    def pages(self, result: Result) -> Mapping[str, str]:
        """`faults.csv`: a line a fault, seed and phase."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        for (name, seed), trial in self.trials.items():
            for phase, seen in trial.phases.items():
                counts = [
                    " ".join(f"{key}={count}" for key, count in sorted(counter.items()))
                    for counter in (seen.missed, seen.refused, seen.errors)
                ]
                said = " | ".join(text.replace("|", "/") for text, _ in seen.said.most_common(3))
                lines.writerow([name, seed, phase, seen.lookups, seen.hits, *counts, seen.wrong, seen.stale, said])
        return {"csv": text.getvalue()}

    def plot(self, result: Result, figure: Figure) -> None:
        """A pair of bars a fault: the share of hits while it lasts, and after it."""
        found = {row.id: row.ours for row in result.rows}
        names = [fault.name for fault in FAULTS if found.get(f"{fault.name}/hits-during") is not None]
        figure.set_size_inches(8, 0.32 * len(names) + 1)
        axes = figure.subplots()
        for place, (phase, colour) in enumerate((("during", "#b5482f"), ("after", "#2f7d5b"))):
            shares = [found.get(f"{name}/hits-{phase}") or 0.0 for name in names]
            axes.barh([n + 0.4 * place for n in range(len(names))], shares, 0.38, color=colour, label=phase)
        axes.set_yticks([n + 0.2 for n in range(len(names))], names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("lookups that were hits, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)


def rows_of(fault: Fault, trials: Sequence[Trial]) -> list[Row]:
    """One row a measure; none could be measured where there is no trial."""
    figures: dict[str, tuple[str, str, list[float], float | None]] = {
        "errors": ("errors raised to callers", "", [float(_sum(t, "errors")) for t in trials], 0.0),
        "wrong": ("wrong values", "", [float(_sum(t, "wrong")) for t in trials], 0.0),
        "stale": ("values that were replaced before", "", [float(_sum(t, "stale")) for t in trials], 0.0),
        "timeouts": ("most timeouts of one lookup", "", [float(t.most_timeouts) for t in trials], 1.0),
        "slowest": (
            "slowest lookup meanwhile, in configured timeouts", "x",
            [max(t.during.slowest, t.writer.slowest) / TIMEOUT_SECONDS for t in trials], _LATE,
        ),
        "heals": (
            "until every block is found again", "s",
            [t.healed_seconds for t in trials if t.healed_seconds is not None], None,
        ),
        "agrees": (
            "until another host has nothing old in its memory", "s",
            [t.agreed_seconds for t in trials if t.agreed_seconds is not None], None,
        ),
    }  # fmt: skip
    rows = [
        Row.of(f"{fault.name}/{name}", words, unit, "lower", values, target=target)
        if values
        else Row(f"{fault.name}/{name}", words, unit, "lower", None)
        for name, (words, unit, values, target) in figures.items()
    ]
    for phase, target in (("during", None), ("after", 100.0)):
        shares = [t.phases[phase].hit_share for t in trials if t.phases[phase].lookups]
        name, words = f"{fault.name}/hits-{phase}", f"lookups that were hits, {_WHEN[phase]}"
        if shares:
            rows.append(Row.of(name, words, "%", "higher", shares, target=target))
        else:
            rows.append(Row(name, words, "%", "higher", None))
    return rows


_WHEN = {"during": "while it lasts", "after": "when it is healed"}


def _sum(trial: Trial, what: str) -> int:
    found = [getattr(phase, what) for phase in trial.phases.values()]
    return sum(each if isinstance(each, int) else each.total() for each in found)
