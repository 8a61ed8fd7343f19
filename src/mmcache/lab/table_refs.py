"""Table `refs`: what each tracker of references costs, and what is left dangling when blocks are evicted meanwhile.

Graphs of a million links in three shapes: `wide` (answers made of ten random pictures each), `cycles` (ten groups, in
each of which everything needs everything in the end) and `deep` (ten groups of a hundred levels). The last part runs
threads on a real `Cache` that has room for a third of what they make.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar

from mmcache import plugins
from mmcache.lab.measure import interleave, uncollected
from mmcache.lab.refs_traffic import NEVER, WORDS, under_eviction
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.model.key import Key
from mmcache.refs.base import Checked, References

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRACKERS = ("counted", "versioned", "soft")
CALLS = ("link", "holds", "valid", "leave", "unlink")
EACH = 10
"""Children of a parent."""
SLOWEST_REACH_MS = 10.0
"""For 1e4 blocks reached in a graph of 1e6 links."""

Graph = tuple[list[tuple[Key, list[Key]]], list[Key]]
"""(parent, its children) each, and the keys whose change reaches about a tenth of the parents."""


class ReferencesTable(Table):
    """Memory, latency, dangling references."""

    name: ClassVar[str] = "refs"
    title: ClassVar[str] = "References: memory a block, latency, what dangles under concurrent eviction"
    remark: ClassVar[str] = (
        "`counted` knows a link from both ends and answers at once; `versioned` and `soft` know it from the parent's "
        "end, in arrays: a third less memory and cheaper links, for a `reach` that looks at all links until it has "
        "looked often enough to sort them (`first reach`; 4 bytes a link then). The hit path reads a dict in C and can "
        "ask nobody whether a block is stale, so every tracker answers `reach` in full, and a stale block is dropped "
        "before `invalidate` returns. "
        "Soft references do not delay eviction, so more of them dangle: a dangling reference is an answer that is held "
        "and right while something it was made from has left; it is never a wrong hit."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """`seeds` draw the graphs and what the threads do."""
        size = 10_000 if quick else 100_000
        steps = 5 + len(seeds)
        rows = []
        for done, part in enumerate((memory, latency)):
            rows += part(wide(random.Random(seeds[0]), size), quick)
            progress("parts", done + 1, steps)
        for done, (shape, make) in enumerate(SHAPES.items()):
            rows += reach(shape, make(random.Random(seeds[0]), size), quick)
            progress("parts", done + 3, steps)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in TRACKERS}
        for done, seed in enumerate(seeds):
            for name in TRACKERS:
                found[name].append(under_eviction(tracker(name), seed, 250 if quick else 1500))
            progress("parts", done + 6, steps)
        for name in TRACKERS:
            rows += eviction_rows(name, found[name])
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                f"the trackers that a cache uses, on graphs of {size * EACH:,} links between {2 * size:,} keys",
                "memory by tracemalloc, the keys themselves not counted: the cache has them anyway",
                "a cache of its own size limit, three threads that make answers, one that changes sources, one that "
                "fills it with other blocks",
            ),
            ("the graphs are drawn (fixed seeds)", "blocks are arrays of zeros"),
            tuple(rows),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Memory, latency, reach and what dangles, a colour a tracker."""
        ours = {row.id: row for row in result.rows}
        panels = {
            "memory a block [B]": ["memory", "memory-asked"],
            "median of a call [ns]": [f"{call}/median" for call in CALLS],
            "reach [ms]": [f"reach/{shape}{when}" for shape in SHAPES for when in ("", "/first")],
            "dangling links of held answers [%]": ["eviction/dangling"],
        }
        figure.set_size_inches(9, 9)
        grid = figure.subplots(len(panels), 1, height_ratios=[1 + len(ids) for ids in panels.values()])
        for axes, (label, ids) in zip(grid, panels.items(), strict=True):
            for turn, name in enumerate(TRACKERS):
                rows = [(place, ours.get(f"{name}/{id}")) for place, id in enumerate(ids)]
                known = [(place + 0.27 * (turn - 1), row.ours or 0.0) for place, row in rows if row is not None]
                axes.barh([place for place, _ in known], [value for _, value in known], height=0.25, label=name)
            axes.set_yticks(range(len(ids)), ids)
            axes.invert_yaxis()
            axes.set_xlabel(label)
            axes.spines[["top", "right"]].set_visible(False)
            if label.startswith("reach"):
                axes.axvline(SLOWEST_REACH_MS, color="black", linewidth=1, linestyle=":")
        grid[1].legend(frameon=False, fontsize=8, loc="center right")
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def wide(rng: random.Random, size: int) -> Graph:
    """Answers made of random pictures; a hundredth of the pictures change."""
    pictures, answers = _keys(1, size), _keys(2, size)
    return [(answer, rng.choices(pictures, k=EACH)) for answer in answers], pictures[: size // 100]


def cycles(rng: random.Random, size: int) -> Graph:
    """Ten groups whose blocks need random ones of the same group; one changes."""
    keys, group = _keys(3, size), size // 10
    firsts = [n // group * group for n in range(size)]
    links = [(key, rng.choices(keys[first : first + group], k=EACH)) for key, first in zip(keys, firsts, strict=True)]
    return links, keys[:1]


def deep(rng: random.Random, size: int) -> Graph:
    """Ten groups of a hundred levels, each made of the one below; the lowest of one changes."""
    keys, group = _keys(4, size), size // 10
    width = group // 100
    links = [
        (keys[n], rng.choices(keys[n // width * width - width : n // width * width], k=EACH))
        for n in range(size)
        if n % group >= width
    ]
    return links, keys[:width]


SHAPES: dict[str, Callable[[random.Random, int], Graph]] = {"wide": wide, "cycles": cycles, "deep": deep}


def _keys(scope: int, count: int) -> list[Key]:
    return [Key(scope.to_bytes(16, "big"), n.to_bytes(16, "big")) for n in range(count)]


def tracker(name: str, links: Sequence[tuple[Key, list[Key]]] = ()) -> References:
    """A new tracker that knows `links`."""
    made: References = plugins.load("refs", name)()
    for parent, children in links:
        made.link(parent, children)
    return made


def memory(graph: Graph, quick: bool) -> list[Row]:
    """Bytes a block, before anybody asked who is reached and after it was asked often enough for an index."""
    links, changed = graph
    blocks = len({parent for parent, _ in links} | {child for _, children in links for child in children})
    links_a_block, rows = len(links) * EACH // blocks, []
    for name in TRACKERS:
        _asked_often(tracker(name, links[:100]), changed)  # what numpy keeps of its first calls is not the tracker's
        tracemalloc.start()
        try:
            held = tracker(name, links)
            bare = tracemalloc.get_traced_memory()[0]
            _asked_often(held, changed)
            asked = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        rows += [
            Row.of(f"{name}/memory", f"memory a block, {links_a_block} links each", "B", "lower", bare / blocks),
            Row.of(f"{name}/memory-asked", "the same, after `reach`", "B", "lower", asked / blocks),
        ]
    return rows


def latency(graph: Graph, quick: bool) -> list[Row]:
    """Each call timed by itself, the trackers taking turns; medians and P99 a round."""
    links, _ = graph
    pictures = [children for _, children in links]
    trackers = {name: tracker(name, links) for name in TRACKERS}
    samples: dict[tuple[str, str], list[list[int]]] = {}
    with uncollected():
        for turn in range(5 if quick else 15):
            answers = _keys(100 + turn, 300 if quick else 1000)
            for call in CALLS:
                for name in TRACKERS if turn % 2 else reversed(TRACKERS):
                    if call == "valid" and not isinstance(trackers[name], Checked):
                        continue
                    act: Callable[..., Any] = getattr(trackers[name], call)
                    times = []
                    for n, answer in enumerate(answers):
                        arguments = {"link": (answer, pictures[n]), "holds": (pictures[n][0],)}.get(call, (answer,))
                        start = perf_counter_ns()
                        act(*arguments)
                        times.append(perf_counter_ns() - start)
                    samples.setdefault((name, call), []).append(times)
    rows = []
    for (name, call), rounds in sorted(samples.items(), key=lambda one: TRACKERS.index(one[0][0])):
        for what, share in (("median", 0.5), ("p99", 0.99)):
            mine = [percentile(times, share) for times in rounds]
            rows.append(Row.of(f"{name}/{call}/{what}", f"`{call}`, {what} of a round", "ns", "lower", mine))
            if name != "counted" and call != "valid":
                theirs = [percentile(times, share) for times in samples["counted", call]]
                ratios = [one / two for one, two in zip(mine, theirs, strict=True)]
                rows.append(Row.of(f"{name}/{call}/{what}/counted", "of `counted`'s", "x", "lower", ratios))
    return rows


def reach(shape: str, graph: Graph, quick: bool) -> list[Row]:
    """Milliseconds; all trackers must reach the same."""
    links, changed = graph
    trackers = {name: tracker(name, links) for name in TRACKERS}
    rows, reached = [], {}
    for name, one in trackers.items():
        _asked_often(tracker(name, links[:100]), changed)
        start = perf_counter_ns()
        reached[name] = one.reach(changed)
        first = (perf_counter_ns() - start) / 1e6
        rows.append(Row.of(f"{name}/reach/{shape}/first", "the first `reach` after all links", "ms", "lower", first))
        _asked_often(one, changed)
    if any(found != reached["counted"] for found in reached.values()):
        raise AssertionError("the trackers disagree on what is reached")  # a defect, not a figure
    calls = {name: (lambda one=one: one.reach(changed)) for name, one in trackers.items()}
    times = interleave(calls, rounds=7 if quick else 25, once=True)
    what = f"`reach` of {len(reached['counted']):,} blocks in {len(links) * EACH:,} links"
    for name, timing in times.items():
        rows.append(
            Row.of(
                f"{name}/reach/{shape}", what, "ms", "lower", timing.scaled(1e3),
                target=None if quick else SLOWEST_REACH_MS,
            )
        )  # fmt: skip
    return rows


def _asked_often(references: References, keys: list[Key]) -> None:
    """So that what it may keep to answer faster is there."""
    for _ in range(6):
        references.reach(keys)


def eviction_rows(name: str, runs: Sequence[dict[str, float]]) -> list[Row]:
    """A run a seed."""
    hits = sum(run["hits"] for run in runs)
    return [
        Row.of(
            f"{name}/eviction/{id}",
            metric.format(hits=hits),
            "%" if id == "dangling" else "times",
            "lower",
            [run[id] for run in runs],
            target=0.0 if id in NEVER else None,
        )
        for id, metric in WORDS.items()
    ]
