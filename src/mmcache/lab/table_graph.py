"""Table `graph`: what the graph of hot keys costs, whatever comes, and whether its communities are the right ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mmcache.hotkeys.graph import MOST_EDGES, MOST_NODES
from mmcache.lab import graph_costs
from mmcache.lab.graph_costs import SIZES, Replayed
from mmcache.lab.graph_world import (
    FADE,
    Followed,
    World,
    followed,
    from_scratch,
    louvain,
    tracked,
)
from mmcache.lab.table import Better, Progress, Result, Row, Table
from mmcache.model.errors import AssetError
from mmcache.settings import traces_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFRESH_MS = 800.0
"""Published, at 1e5 edges."""
CHURNED, QUICK_CHURNED = 10_000_000, 400_000
_FLAT, _AGREES, _KEPT, _MEBIBYTES = 2.0, 0.95, 0.99, 16.0
NOISES = (0.1, 0.5)
WAYS = {
    "ours": "ours",
    "scratch": "ours, each time from single keys",
    "louvain": "networkx's Louvain, from single keys",
}
TRACES = ("mooncake", "web12")


class GraphTable(Table):
    """Updates, refreshes, bytes, and communities that appear, merge and fade."""

    name: ClassVar[str] = "graph"
    title: ClassVar[str] = "The graph of hot keys: what it costs, and whether its communities are followed"
    remark: ClassVar[str] = (
        "Published: a refresh of the live topology within 800 ms at 1e5 edges; nothing is published of the rest. "
        "`refresh`: communities, their ids and the view, in one thread, after two in a hundred edges "
        "changed; `first` begins from single keys; `cpu` is what it takes of a core, whatever else that does. "
        "`update`: one `follow` of an edge that is there. It is O(1) in "
        "work; at 1e5 edges dicts and arrays no longer fit the processor's own caches, which is what the ratio shows. "
        "`churn`: each update brings two keys that were never seen, at the bounds, so it includes letting the weakest "
        "go. `churn/memory`: what came to the process's memory after the graph was full, whatever else the process did "
        "meanwhile. `get/events`: the reader runs the same code, so all but 0 is noise. "
        "`world`: a generated one; an id counts as kept where a key has the same one at the next look. The "
        "ways that begin from single keys number communities by size, as they have no memory; who joins such numbers "
        "over time does what `ours` does. Fading is said when a weight is below 0.7 of its peak of lately, which the "
        "decay alone takes 88 ticks for, and over below 0.1, after 575: a smaller threshold would be said sooner and "
        "of the living too. Agreement is measured 150 ticks after a change. On the traces nobody knows the truth, so "
        "only cost, modularity and kept ids are shown; in `mooncake` sessions are a prompt's blocks, in `web12` there "
        "are none, so its edges are those of neighbours in time, whoever they were, and modularity is low."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real code; worlds are generated, traces are read where they are there."""
        seeds = tuple(seeds[:1] if quick else seeds)
        steps, done, missing = 5 + len(TRACES), 0, list[str]()
        rows: list[Row] = []

        def step(name: str) -> None:
            nonlocal done
            progress(name, done, steps)
            done += 1

        step("updates")
        rows += _updates(seeds[0], quick)
        step("refreshes")
        rows += _refreshes(seeds, quick)
        step("memory")
        rows += _memory(seeds[0], quick)
        step("hot path")
        rows += _hot_path(quick)
        step("worlds")
        rows += _worlds(seeds, quick, missing)
        for name in TRACES:
            step(name)
            try:
                rows += _trace(name, graph_costs.replayed(name, traces_folder(), quick))
            except AssetError as error:
                missing.append(str(error))
        progress("graph", steps, steps)
        return Result(
            self.name, quick, seeds,
            (
                "the graph, communities, tracker and view that HotKeys runs",
                "traces: Mooncake's conversations (FAST 2025), cache2k's web12, where they are there",
                *missing,
            ),
            (
                "worlds: groups of 25 keys, of which some appear, merge and fade at known ticks, and steps that go "
                "anywhere (10 % and 50 %)",
                "edges of the timed graphs, and keys that are used once: drawn at random",
            ),
            tuple(rows),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Updates and refreshes by size, and how the three ways keep ids."""
        found = {row.id: row.ours for row in result.rows if row.ours is not None}
        figure.set_size_inches(9, 3)
        left, right = figure.subplots(1, 2)
        left.plot(SIZES, [found.get(f"update/{size}", 0.0) for size in SIZES], "o-", color="#2f7d5b")
        left.set_xscale("log")
        left.set_ylim(bottom=0.0)
        left.set_xlabel("edges")
        left.set_ylabel("ns an update")
        for place, (way, colour) in enumerate(zip(WAYS, ("#2f7d5b", "#8a8a8a", "#c7c7c7"), strict=True)):
            values = [found.get(f"world-{round(100 * noise)}/{way}/kept", 0.0) for noise in NOISES]
            right.bar([at + 0.27 * (place - 1) for at in range(len(NOISES))], values, 0.25, label=way, color=colour)
        right.set_xticks(range(len(NOISES)), [f"{round(100 * noise)} % noise" for noise in NOISES])
        right.set_ylabel("% of keys whose id is kept")
        right.set_ylim(0.0, 115.0)
        right.legend(frameon=False, fontsize=8, ncols=3)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)


def _updates(seed: int, quick: bool) -> list[Row]:
    found = graph_costs.updates(seed, quick)
    rows = [
        Row.of(f"update/{size}", f"an update of a graph of {size} edges", "ns", "lower", found[str(size)].scaled(1e9))
        for size in SIZES
    ]
    ratio = found[str(SIZES[-1])].over(found[str(SIZES[0])])
    rows.append(Row.of("update/flat", "… at 1e5 edges over at 1e3", "x", "lower", ratio, target=_FLAT))
    rows.append(
        Row.of("update/churn", "an update with two new keys, at the bounds", "ns", "lower", found["churn"].scaled(1e9))
    )
    return rows


def _refreshes(seeds: Sequence[int], quick: bool) -> list[Row]:
    later, worked, first = list[float](), list[float](), list[float]()
    for seed in seeds:
        took, processor = graph_costs.refreshes(seed, 3 if quick else 8)
        later += [1e3 * seconds for seconds in took[1:]]
        worked += [1e3 * seconds for seconds in processor[1:]]
        first.append(1e3 * took[0])
    return [
        Row.of(
            "refresh", "communities, ids and view at 1e5 edges", "ms", "lower", later, target=REFRESH_MS,
            published=REFRESH_MS,
        ),
        Row.of("refresh/cpu", "… of the processor", "ms", "lower", worked),
        Row.of("refresh/slowest", "… the slowest", "ms", "lower", max(later), target=REFRESH_MS),
        Row.of("refresh/first", "… the first, from single keys", "ms", "lower", first, target=REFRESH_MS),
    ]  # fmt: skip


def _memory(seed: int, quick: bool) -> list[Row]:
    edge, node = graph_costs.bytes_an_edge(seed)
    found = graph_costs.churned(QUICK_CHURNED if quick else CHURNED)
    keys = f"{found.keys:,}".replace(",", " ")
    return [
        Row.of("memory/edge", "memory an edge, with its share of nodes, at 1e5 edges", "B", "lower", edge),
        Row.of("memory/node", "… by key, of five edges each", "B", "lower", node),
        Row.of("churn/keys", f"keys that are held after {keys}", "keys", "lower", found.nodes, target=MOST_NODES),
        Row.of("churn/edges", "… edges", "edges", "lower", found.edges, target=MOST_EDGES),
        Row.of(
            "churn/memory", "… memory that came since it was full", "MiB", "lower", found.mebibytes, target=_MEBIBYTES
        ),
        Row.of("churn/use", "… a use and its edge", "ns", "lower", 1e9 * found.seconds / found.keys),
    ]


def _hot_path(quick: bool) -> list[Row]:
    found = graph_costs.hot_path(31 if quick else 201)
    nobody = found["nobody"]
    rows = [Row.of("get/nobody", "a get from memory that nobody watches", "ns", "lower", nobody.scaled(1e9))]
    for name, words, target in (
        ("events", "what the watcher adds to it", 3.0), ("visits", "… told of visits, with sessions", None),
    ):  # fmt: skip
        extra = [1e9 * (mine - bare) for mine, bare in zip(found[name].samples, nobody.samples, strict=True)]
        rows.append(Row.of(f"get/{name}", words, "ns", "lower", extra, target=target))
    return rows


def _worlds(seeds: Sequence[int], quick: bool, missing: list[str]) -> list[Row]:
    rows: list[Row] = []
    for noise in NOISES[1:] if quick else NOISES:
        runs: dict[str, list[Followed]] = {way: [] for way in WAYS}
        for seed in seeds:
            follow, events = tracked()
            runs["ours"].append(followed(World(seed, noise), follow, events))
            if not quick:
                runs["scratch"].append(followed(World(seed, noise, FADE), from_scratch))
        if not quick:
            try:
                runs["louvain"].append(followed(World(seeds[0], noise, FADE), louvain))
            except ImportError as error:
                missing.append(f"not compared here: {error}")
        for way, several in runs.items():
            if several:
                rows += _world(f"world-{round(100 * noise)}/{way}", WAYS[way], noise, several, way == "ours")
    return rows


def _world(id: str, words: str, noise: float, runs: Sequence[Followed], ours: bool) -> list[Row]:
    at = f"{words}, {round(100 * noise)} % of steps anywhere"

    def row(
        name: str, metric: str, unit: str, better: Better, values: Sequence[float], target: float | None = None
    ) -> list[Row]:
        return [Row.of(f"{id}/{name}", metric, unit, better, values, target=target if ours else None)] if values else []

    return [
        *row("nmi", f"agreement with the truth (NMI): {at}", "", "higher", [run.nmi for run in runs], _AGREES),
        *row("ari", "… adjusted Rand index", "", "higher", [run.ari for run in runs], _AGREES),
        *row("kept", "… keys whose id is kept", "%", "higher", [100 * run.kept for run in runs], 100 * _KEPT),
        *row("appear", "… ticks until one that appears is seen", "ticks", "lower", [t for r in runs for t in r.appear]),
        *row("merge", "… until two that merge are one", "ticks", "lower", [t for r in runs for t in r.merge]),
        *row("fading", "… until one that is used no more fades", "ticks", "lower", [t for r in runs for t in r.fading]),
        *row("faded", "… and is over", "ticks", "lower", [t for r in runs for t in r.faded]),
        *(row("false", "… events that are none of the world's", "events", "lower", [r.false for r in runs])
          if ours else []),
        *row("look", "… a look", "ms", "lower", [1e3 * run.seconds for run in runs]),
    ]  # fmt: skip


def _trace(name: str, found: Replayed) -> list[Row]:
    return [
        Row.of(f"{name}/update", f"{name}: a use and its edge", "ns", "lower", 1e9 * found.update),
        Row.of(f"{name}/edges", "… most edges", "edges", "lower", found.edges, target=MOST_EDGES),
        Row.of(
            f"{name}/refresh", "… communities and ids", "ms", "lower", [1e3 * seconds for seconds in found.refresh],
            target=REFRESH_MS,
        ),
        Row.of(f"{name}/communities", "… communities that live", "communities", "higher", found.communities),
        Row.of(f"{name}/modularity", "… modularity", "", "higher", found.modularity),
        Row.of(f"{name}/kept", "… keys whose id is kept from look to look", "%", "higher", 100 * found.kept),
    ]  # fmt: skip
