"""Table `policies`: who goes when memory is short; ours, eleven others and the optimum, on every trace (C4).

Each policy of ours is the object that the cache uses, replayed as the memory tier drives it. Memory is 1, 10 and 20 %
of all bytes of a trace; the first 70 % of the requests are what `auto` may have been tuned on, the rest is held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache import plugins, settings
from mmcache.lab import arena, rivals
from mmcache.lab.arena import HELD_OUT, Input
from mmcache.lab.policy_cost import bytes_a_block, nanoseconds
from mmcache.lab.replay import policy_named, replay, score
from mmcache.lab.standings import Standings
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.lab.traces import published, synthetic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

AUTO, PLAIN = "auto", "lru"
QUICK_TRACES, QUICK_REQUESTS, QUICK_MADE_UP = ("web12", "adaptsize"), 25_000, 4000
ATTACKS = ("scan", "loop", "flash", "one-hit")
"""Patterns that a policy must survive: never more than 5 % fewer hits than LRU."""
LEAST_OF_LRU = 0.95
DARK = 9.0
"""Points behind the best from which a field of the map is dark."""
MOST_NANOSECONDS = 1000.0
MOST_BYTES = 64.0


class PoliciesTable(Table):
    """Cost saved, misses and byte misses of every policy on every trace."""

    name: ClassVar[str] = "policies"
    title: ClassVar[str] = "Policies: what each saves of the cost to compute, on all traces and three sizes of memory"
    remark: ClassVar[str] = (
        "A row of a cell is the gap between `auto` and the best of all rivals in that cell, in points of the "
        "cost-weighted hit ratio, seed by seed; with uniform costs that is the object hit ratio. A gap below 1 "
        "point is noise; where `auto` is not the first, as in the largest memory on mooncake and w106, its row is "
        "negative. The summary takes the mean of the seeds. All contenders, with object and byte miss ratios, are "
        "in policies.csv. `at most` is an upper bound on what any cache could save, by a linear programme that "
        "knows the future (PFOO-L, tightened by prices of space for parts of the trace); where all blocks weigh the "
        "same, Belady's exact optimum stands there. The traces carry neither modalities nor costs: with `encoder`, "
        "each block draws them for a seed. They have no attention entropies either, without which `entropy-lfu` is "
        "LFU. `lru` and `LRU` are two implementations of one policy, ours and libCacheSim's: that they agree in "
        "every cell is a check of the replay. libCacheSim's LHD learns once in a million requests, so all but w106 "
        "see its first guess: unfair to it. LHD and Cacheus draw random numbers, and differ a little from run to "
        "run. `auto` was tuned on the first 70 %. The held-out tails were looked at once before its last two changes, "
        "which were chosen without them (decision 008)."
    )

    def __init__(self) -> None:
        self._standings: Standings | None = None

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Traces in `$MMCACHE_TRACES`, or made-up ones where there are none. Raises `AssetError`."""
        source, names = _input(quick)
        cells = arena.cells(names, seeds)
        outcomes = arena.run(cells, source, progress, processes=1 if quick and source.folder is None else None)
        standings = self._standings = Standings(outcomes)
        known = plugins.names("policies")
        ours = AUTO if AUTO in known else PLAIN
        rows = [*standings.rows(ours), *_attacks(ours, 4000 if quick else 20_000, seeds), *_costs(ours, source, quick)]
        return Result(self.name, quick, tuple(seeds), _real(source, names, known), _simulated(source), tuple(rows))

    def pages(self, result: Result) -> Mapping[str, str]:
        """Every outcome, as CSV."""
        return {"csv": self._standings.csv()} if self._standings else {}

    def plot(self, result: Result, figure: Figure) -> None:
        """A map: how far each contender is behind the best of each cell."""
        if self._standings is None:
            super().plot(result, figure)
            return
        names, cells, behind = self._standings.matrix(HELD_OUT)
        figure.set_size_inches(2.5 + 0.32 * len(cells), 2.4 + 0.24 * len(names))
        axes = figure.subplots()
        image = axes.imshow(behind, cmap="YlOrRd", vmin=0, vmax=15, aspect="auto")
        axes.set_xticks(range(len(cells)), cells, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        for place, row in enumerate(behind):
            for column, points in enumerate(row):
                ink = "white" if points > DARK else "black"
                axes.text(column, place, f"{points:.0f}", ha="center", va="center", fontsize=6, color=ink)
        figure.colorbar(image, label="points of cost saved behind the best, held-out part")
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}: best on average on top")


def _input(quick: bool) -> tuple[Input, Sequence[str]]:
    folder = settings.traces_folder()
    there = all((folder / one.file).is_file() for one in published.PUBLISHED.values())
    source = Input(folder.resolve() if there else None, (QUICK_REQUESTS if there else QUICK_MADE_UP) if quick else None)
    return source, QUICK_TRACES if quick and there else source.names


def _real(source: Input, names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    lines = [f"policies of this package as the cache uses them ({', '.join(known)})"]
    if source.folder is not None:
        cut = f", first {source.requests} requests" if source.requests else ""
        lines += [f"trace {name}: {published.PUBLISHED[name].source}{cut}" for name in names]
    there = len(rivals.available()) > 1
    lines.append("rivals of libCacheSim 0.3.5" if there else "no rivals but GDSF: libcachesim is not installed here")
    return tuple(lines)


def _simulated(source: Input) -> tuple[str, ...]:
    lines = [
        "`encoder`: modality and scale of a block are drawn by a hash (text 45 %, image 35 %, audio 15 %, video 5 %); "
        "seconds and bytes are those measured on real encoders; traces with sizes keep them",
        "scan, loop, flash and one-hit streams",
    ]
    if source.folder is None:
        lines.append(f"all traces, for the published ones are not here (MMCACHE_TRACES): {', '.join(source.names)}")
    return tuple(lines)


def _attacks(ours: str, requests: int, seeds: Sequence[int]) -> list[Row]:
    rows = []
    for name in ATTACKS:
        ratios = []
        for seed in seeds:
            trace = synthetic.pattern(name, requests, seed)
            for percent in arena.PERCENTS:
                limit = trace.capacity(percent)
                mine, plain = (score(trace, replay(trace, policy_named(one), limit).hits).hits for one in (ours, PLAIN))
                ratios.append(mine / max(1, plain))
        rows.append(
            Row.of(
                f"attack/{name}", f"hits of {ours}, of LRU's; the worst of {len(ratios)} sizes and seeds", "x",
                "higher", min(ratios), target=LEAST_OF_LRU,
            )
        )  # fmt: skip
    return rows


def _costs(ours: str, source: Input, quick: bool) -> list[Row]:
    """What policies themselves take: time on the trace with most hits, bytes on that with most blocks."""
    asked, held = ("web12", "mooncake") if source.folder is not None else ("popular", "drift")
    trace = arena.trace_of(source, asked, arena.ENCODER, 0).first(20_000 if quick else 100_000)
    names = dict.fromkeys((PLAIN, ours))
    own = nanoseconds(trace, list(names), trace.capacity(10), 5 if quick else 15)
    rows = [
        Row.of(
            f"time/{name}", f"{name} itself, a request of {asked} at 10 %: add, touch, drop, victims; processor time",
            "ns", "lower", own[name], target=MOST_NANOSECONDS if name == AUTO else None,
        )
        for name in names
    ]  # fmt: skip
    if ours != PLAIN:
        ratios = [mine / max(1.0, plain) for mine, plain in zip(own[ours], own[PLAIN], strict=True)]
        rows.append(Row.of(f"time/{ours}/lru", f"time of {ours}, of LRU's", "x", "lower", ratios))
    trace = arena.trace_of(source, held, arena.ENCODER, 0)
    rows += [
        Row.of(
            f"bytes/{name}", f"{name} itself, a block held of {held} at 1, 10, 20 %; its map, ghosts, tables included",
            "B", "lower", [bytes_a_block(trace, name, trace.capacity(percent)) for percent in arena.PERCENTS],
            target=MOST_BYTES if name == AUTO else None,
        )
        for name in names
    ]  # fmt: skip
    return rows
