"""The outcome for a terminal of 80 columns, by rich."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mmcache.lab.demo.outcome import RESTART_TARGET, Outcome
from mmcache.lab.demo.walked import found, waited
from mmcache.lab.demo.words import size, time
from mmcache.lab.table import percentile


def screen(outcome: Outcome) -> RenderableType:
    """Everything that the report says, in short."""
    return Group(_passes(outcome), _hits(outcome), _verdict(outcome))


def _passes(outcome: Outcome) -> Table:
    grid = _grid(f"{len(outcome.manifest.asks):,} requests", "", *outcome.trio)
    passes = list(outcome.trio.values())
    seconds = [outcome.latencies(which) for which in passes]
    rows = {
        "waited in all": [time(which.wall_seconds) for which in passes],
        "inside the models": [time(which.encoder_seconds) for which in passes],
        "loading weights": [time(which.load_seconds) for which in passes],
        "latency p50": [time(percentile(each, 0.5)) for each in seconds],
        "latency p99": [time(percentile(each, 0.99)) for each in seconds],
        "first request": [time(each[0]) for each in seconds],
        "model inputs computed": [f"{sum(record.computed for record in which.records):,}" for which in passes],
        "features handed out": [size(sum(record.nbytes for record in which.records)) for which in passes],
        "on disk": [size(which.stored_bytes) if which.stored_bytes else "–" for which in passes],
    }
    for name, cells in rows.items():
        grid.add_row(name, *cells)
    return grid


def _hits(outcome: Outcome) -> Table:
    grid = _grid("Hit rate", "", "requests", "first", "restarted")
    first, again = outcome.passes.first, outcome.passes.restarted
    for groups, after in (
        (outcome.by_modality(first), outcome.by_modality(again)),
        (outcome.by_kind(first), outcome.by_kind(again)),
    ):
        for name, share in groups.items():
            grid.add_row(name, f"{share.asked:,}", f"{100 * share.ratio:.1f} %", f"{100 * after[name].ratio:.1f} %")
        grid.add_section()
    for reason in sorted({*first.miss_reasons, *again.miss_reasons}):
        counts = (f"{which.miss_reasons.get(reason, 0):,}" for which in (first, again))
        grid.add_row(f"misses: {reason}", "", *counts)
    return grid


def _verdict(outcome: Outcome) -> Text:
    lossy, count = outcome.passes.lossy, 2 * len(outcome.manifest.asks)
    fast = outcome.restart_speedup >= RESTART_TARGET
    lines = Text()
    lines.append(f"Restart: {outcome.restart_speedup:.1f} × faster", "bold green" if fast else "bold red")
    lines.append(f", the first request included (target ≥ {RESTART_TARGET:g} ×).\n")
    if outcome.unequal:
        lines.append(f"Equality: {outcome.unequal:,} of {count:,} cached outputs are not", "bold red")
    else:
        lines.append(f"Equality: all {count:,} cached outputs are", "bold green")
    lines.append(" bit-equal to those without a cache.\n")
    lines.append(
        f"int4: largest error {lossy.largest_share:.2f} of its bound",
        "bold green" if lossy.largest_share <= 1 else "bold red",
    )
    share = 200 * lossy.stored_bytes / lossy.exact_bytes
    lines.append(f", {share:.0f} % of float16 bytes, cosine {lossy.mean_cosine:.4f}.\n")
    if (visited := outcome.passes.visited) is not None:
        before, after = waited(visited.without), waited(visited.foreseen)
        lines.append("Foreseen", "bold green" if outcome.visits_unequal == 0 else "bold red")
        lines.append(f": with prefetching, a newcomer waited {time(after)} instead of {time(before)}: ")
        lines.append(f"{found(visited)}; {visited.brought} blocks brought ahead, {visited.used} of them used.\n")
    lines.append(f"Real: {'; '.join(outcome.real)}.\nSimulated: {'; '.join(outcome.simulated)}.", "dim")
    return lines


def _grid(title: str, *columns: str) -> Table:
    grid = Table(title=title, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        grid.add_column(column, justify="right" if place else "left")
    return grid
