"""Table `ebpf`: hot keys found by the kernel, by sampling from user space, and by a ring of our own."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab import probe_cost, traced_runs
from mmcache.lab.measure import busy, machine
from mmcache.lab.table import Better, Progress, Result, Row, Table, percentile
from mmcache.lab.traced_runs import WATCHERS, Seen
from mmcache.model.errors import TracerError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES, QUICK_RATES = (1_000, 5_000, 20_000), (5_000,)
_CPU_PERCENT, _DELAY_MS, _UNTRACED_NS = 0.7, 15.0, 3.0
_PUBLISHED = {"ebpf": (0.7, 15.0), "frames-100": (8.2, 200.0)}
WORDS = {
    "ebpf": "the kernel (mmcache trace)",
    "ring": "a ring in the process that hears every hit, counted each 10 ms",
    "recency": "the memory tier's own recency ring, read each 10 ms",
    "frames-100": "looking at frames 100 times a second",
    "frames-1000": "looking at frames 1000 times a second",
    "py-spy-100": "py-spy record, 100 a second",
}


class EbpfTable(Table):
    """CPU, delay and truth of who watches for hot keys."""

    name: ClassVar[str] = "ebpf"
    title: ClassVar[str] = "Hot keys: found by the kernel, by sampling, and by a ring of our own"
    remark: ClassVar[str] = (
        "One process reads 2 000 keys of a real cache (Zipf, s = 1, a Poisson process at the rate named, and ten cold "
        "keys that are read at 150 to 400 a second for one second each) and logs when it read which. By that log a "
        "key is hot from its 101st read within a second on. `cpu`: CPU that watching adds, in % of one core: what the "
        "watched process takes more than in the runs before and after that nobody watches, and what the watching "
        "process takes; the difference of two runs, so a few tenths are noise, and a watcher may even seem to gain. "
        "`delay`: from the crossing to the moment at which the watcher knows; of the keys found. `found`: share of "
        "the hot keys that were marked. `false`: keys marked that were not hot, or not yet, by hot keys. The "
        "published figures name no rate of reads. A trace costs by the read (`cost/traced-read`; more where reads are "
        "far apart and the processor's caches are cold), so at many reads a second it takes more than the published "
        "share. Frames name the key only because the reader keeps it in a local variable; py-spy's record shows "
        "functions, not keys, so it finds none. `untraced`: the same index built with the probe and without it."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real processes; where the kernel lets nothing be traced, its rows are blank and the others run."""
        rates, seconds = (QUICK_RATES if quick else RATES), (1.8 if quick else 2.0)
        seeds = tuple(seeds[:1] if quick else seeds)
        watchers = [name for name in WATCHERS if name != "py-spy-100" or traced_runs.spy_installed()]
        runs: defaultdict[tuple[int, str], list[Seen]] = defaultdict(list)
        missing: list[str] = []
        steps, done = len(rates) * len(seeds) * (len(watchers) + 1), 0
        for rate in rates:
            for seed in seeds:
                with traced_runs.child() as one:
                    for name in (*watchers, "none"):
                        progress(f"{rate} reads a second, {name}", done, steps)
                        done += 1
                        try:
                            runs[rate, name].append(traced_runs.watch(one, name, rate, seconds, seed))
                        except TracerError as error:
                            missing.append(f"not traced here: {error}")
        rows = [row for rate in rates for name in WATCHERS[1:] for row in rows_of(rate, name, runs)]
        rows += _costs(quick, missing)
        progress("ebpf", steps, steps)
        return Result(
            self.name, quick, seeds,
            (
                f"a process that reads, and a process or thread that watches it: {machine()}",
                "mmcache trace's program in this machine's kernel; py-spy where it is installed",
                *busy(),
                *dict.fromkeys(missing),
            ),
            ("when which key is read is drawn at random; values are arrays of 32 bytes",),
            tuple(rows),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Delay and CPU at the middle rate, a bar a watcher."""
        found = {row.id: row for row in result.rows}
        rate = 5_000
        figure.set_size_inches(9, 3)
        for axes, measure, unit in zip(
            figure.subplots(1, 2), ("delay", "cpu"), ("ms to the mark, median", "% of a core"), strict=True
        ):
            names = [name for name in WORDS if (row := found.get(f"{rate}/{name}/{measure}")) and row.ours is not None]
            values = [found[f"{rate}/{name}/{measure}"].ours or 0.0 for name in names]
            axes.barh(names, values, color=["#2f7d5b" if name == "ebpf" else "#8a8a8a" for name in names])
            axes.invert_yaxis()
            axes.set_xlabel(f"{unit}, {rate} reads a second")
            if measure == "delay":
                axes.set_xscale("log")
            axes.spines[["top", "right"]].set_visible(False)


def rows_of(rate: int, name: str, runs: dict[tuple[int, str], list[Seen]]) -> list[Row]:
    """Of one watcher at one rate; blank where it did not run."""
    seen, bare = runs.get((rate, name), []), runs.get((rate, "none"), [])
    bases = [(one.cpu + other.cpu) / 2 for one, other in zip(bare[::2], bare[1::2], strict=True)]
    cpu = [100 * (one.cpu + one.watcher_cpu - base) for one, base in zip(seen, bases, strict=False)]
    delays = [1000 * percentile(one.delays, 0.5) for one in seen if one.delays]
    most = [1000 * max(one.delays) for one in seen if one.delays]
    ours = name == "ebpf"
    published = _PUBLISHED.get(name, (None, None))
    who, at = WORDS[name], f"{rate} reads a second"
    made = [
        _row(
            f"{rate}/{name}/cpu", f"CPU that {who} adds, {at}", "%", cpu, _CPU_PERCENT if ours else None, published[0]
        ),
        _row(f"{rate}/{name}/watcher", "… of it in a process of its own", "%", [100 * one.watcher_cpu for one in seen]),
    ]
    if not name.startswith("py-spy"):
        made += [
            _row(
                f"{rate}/{name}/delay",
                "… until it marks a hot key",
                "ms",
                delays,
                _DELAY_MS if ours else None,
                published[1],
            ),
            _row(f"{rate}/{name}/latest", "… until it marks the last of them", "ms", most),
        ]
    found = [100 * one.found for one in seen]
    false = [100 * one.false / max(1, one.hot) for one in seen]
    every, none = (100.0, 0.0) if ours else (None, None)
    return [
        *made,
        _row(f"{rate}/{name}/found", "… hot keys that it finds", "%", found, every, better="higher"),
        _row(f"{rate}/{name}/false", "… keys that it marks wrongly, by hot keys", "%", false, none),
    ]


def _row(
    id: str,
    metric: str,
    unit: str,
    values: Sequence[float],
    target: float | None = None,
    published: float | None = None,
    better: Better = "lower",
) -> Row:
    if not values:
        return Row(id, metric, unit, better, None, None, target, published)
    return Row.of(id, metric, unit, better, values, target=target, published=published)


def _costs(quick: bool, missing: list[str]) -> list[Row]:
    """What a probe costs; blank where it cannot be measured."""

    def tried(measure: Callable[[], list[Row]], blank: Callable[[], list[Row]]) -> list[Row]:
        if probe_cost.compiler() is None:
            missing.append("no C compiler: what a probe costs by instruction was not measured")
            return blank()
        try:
            return measure()
        except (TracerError, subprocess.CalledProcessError) as error:
            missing.append(f"not measured here: {error}")
            return blank()

    count, repeats = (100_000, 3) if quick else (500_000, 7)

    def untraced(values: Sequence[float]) -> list[Row]:
        return [_row("cost/untraced", "what the probe adds to a read that nobody traces", "ns", values, _UNTRACED_NS)]

    def traced(values: Sequence[float]) -> list[Row]:
        return [_row("cost/traced-read", "what a trace adds to a read, in a loop", "ns", values)]

    def instructions() -> list[Row]:
        found = probe_cost.by_instruction(count // 5, repeats)  # some take 10 µs
        return [
            _row(f"cost/{kind}", f"what a trace adds to a call that begins with {_KINDS[kind]}", "ns", found[kind][1])
            for kind in probe_cost.KINDS
        ] + [_row("cost/call", "a call that nobody traces", "ns", [found["nop5"][0]])]

    return [
        *tried(lambda: untraced(probe_cost.untraced_read(count, repeats)), lambda: untraced([])),
        *tried(lambda: traced(probe_cost.traced_read(count, repeats)), lambda: traced([])),
        *tried(
            instructions, lambda: [_row(f"cost/{kind}", f"… {_KINDS[kind]}", "ns", []) for kind in probe_cost.KINDS]
        ),
    ]


_KINDS = {
    "nop5": "a nop of 5 bytes, as ours",
    "nop1": "a nop of 1 byte, as USDT",
    "push": "push %rbp",
    "sub": "sub $8, %rsp",
    "endbr64": "endbr64",
}
