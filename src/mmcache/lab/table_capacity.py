"""Table `capacity`: how large a cache must be, from one process to a thousand GPUs.

Hits and balance are replays of real streams through the product's own policy and key names; bytes and bandwidth are
measured; the rest is arithmetic on stated assumptions (`lab.capacity.paper`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mmcache import settings
from mmcache.lab.capacity import node, paper, shards, sharing, streams
from mmcache.lab.capacity.streams import Stream
from mmcache.lab.measure import machine
from mmcache.lab.table import Better, Progress, Result, Row, Table, percentile
from mmcache.lab.traces import published
from mmcache.lab.traces.trace import uniform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEMORY = 10
"""Per cent of all blocks that fit, in all engines together or in the shared tier."""
ENGINES = (1, 8, 64)
SHARES = (1, 4, 16, 64)
"""A stream thinned to one request in so many."""
SHARDS = (3, 12, 48, 192)
HOTTEST = 16
GPUS = (1, 8, 64, 256, 1000)
LOCAL_AND_SHARED = "local-and-shared"
QUICK_USES = 20_000
PICTURE, CHAIN = "LLaVA-1.5 7B, projected", "int4:group=64"
"""Of which the paper cluster is made."""


class CapacityTable(Table):
    """Hits by how many share, bytes a picture, a node's bandwidth, balance of shards, and sizes on paper."""

    name: ClassVar[str] = "capacity"
    title: ClassVar[str] = "Capacity: from one process to a thousand GPUs"
    remark: ClassVar[str] = (
        "At equal memory in all, a shared tier finds what any engine computed; caches of their own lose most of it "
        "once requests are spread, and a router that sends like to like keeps nearly all of it, at the price of the "
        "busiest engine's load (`busiest`). Half of the memory at the engines and half shared finds less than all of "
        "it shared, since the hottest blocks are held many times; what it buys is that these never cross the network. "
        "No published trace names pictures: conversations (blocks of prompts) and a shop's pages stand for low and "
        "high reuse. Thinned streams say how hits grow with traffic, and nothing beyond the whole stream is claimed: "
        "`paper` takes the hits of 64 engines as they are, for any number. Everything in `paper` and `break-even` "
        "rests on assumptions that are named under what was simulated; `lab/capacity/paper.py` has them as fields. "
        "One node's bandwidth is that of one Python process on loopback, client and server on the same two cores: a "
        "lower bound of a server's."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Traces in `$MMCACHE_TRACES`, or a made-up stream. Raises `AssetError`."""
        folder = settings.traces_folder()
        wanted = [published.PUBLISHED[name].file for name in ("mooncake", "web12")]
        there = folder if all((folder / file).is_file() for file in wanted) else None
        found = streams.read(there, QUICK_USES if quick else None, seeds[0])
        rows: list[Row] = []
        for stream in found:
            rows += _sharing(stream, seeds, progress)
            rows += _growth(stream, seeds, progress)
            rows += _balance(stream, seeds)
        rows += _bytes()
        rows += _bandwidth(5 if quick else 25, progress)
        rows += _paper(found, rows)
        assumed = paper.Assumed()
        return Result(
            self.name, quick, tuple(seeds),
            (
                *(
                    f"{len(stream.ids)} uses of {stream.blocks} blocks: {stream.name}"
                    + (f" ({published.PUBLISHED[file].source})" if there else "")
                    for stream, file in zip(found, ("mooncake", "web12"), strict=False)
                ),
                f"policy `{sharing.POLICY}`, names of keys and slots, frames and codecs of this package",
                f"one Valkey server on loopback, read by the product's tier; {machine()}",
            ),
            (
                *(() if there else ("the stream, for the published ones are not here (MMCACHE_TRACES)",)),
                "which engine a request goes to (a hash of its number; or of its first own block: affinity)",
                "values of features (normal noise; the size of a block does not depend on them)",
                f"paper: {assumed}; blocks are {PICTURE} as {CHAIN}",
            ),
            tuple(rows),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Hits by engines; hits by traffic; the hottest shard; shards on paper."""
        figure.set_size_inches(11, 7)
        values = {row.id: row.ours for row in result.rows if row.ours is not None}
        names = list(dict.fromkeys(row.id.split("/")[0] for row in result.rows if "/engines/" in row.id))
        panels = figure.subplots(2, 2).ravel()
        for style, name in zip(("-", "--"), names, strict=False):
            for colour, way in enumerate(WAYS):
                line = [values[f"{name}/engines/{engines}/{way}"] for engines in ENGINES]
                panels[0].plot(ENGINES, line, style, color=f"C{colour}", marker="o", label=f"{name}, {way}")
            panels[1].plot([1 / share for share in SHARES], [values[f"{name}/traffic/{share}"] for share in SHARES],
                           style, marker="o", label=name)  # fmt: skip
            for colour, way in enumerate(("plain", "copies", "hottest")):
                line = [values[f"{name}/shards/{count}/{way}"] for count in SHARDS]
                panels[2].plot(SHARDS, line, style, color=f"C{colour}", marker="o", label=f"{name}, {way}")
            line = [values[f"paper/{name}/{gpus}/shards"] for gpus in GPUS]
            panels[3].plot(GPUS, line, style, marker="o", label=name)
        titles = ("hits, % (equal memory in all)", "hits, %", "hottest node over the mean", "shards, on paper")
        below = ("engines", "share of the traffic", "shards", "GPUs")
        for panel, title, label in zip(panels, titles, below, strict=True):
            panel.set_title(title)
            panel.set_xlabel(label)
            panel.set_xscale("log")
            panel.legend(frameon=False, fontsize=7)
            panel.spines[["top", "right"]].set_visible(False)
        panels[2].set_yscale("log")
        panels[3].set_yscale("log")
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


WAYS = ("own", "own-affinity", "shared", LOCAL_AND_SHARED)
_WORDS = {
    "own": "hits, each engine with its own cache, requests spread evenly",
    "own-affinity": "hits, each engine with its own cache, like requests to one engine",
    "shared": "hits, one shared cache of the same memory in all",
    LOCAL_AND_SHARED: "hits, half of the memory at the engines, half shared; requests spread evenly",
}


def _sharing(stream: Stream, seeds: Sequence[int], progress: Progress) -> Iterator[Row]:
    """The same memory in all, in one cache or in many."""
    total = stream.blocks * MEMORY // 100
    for step, engines in enumerate(ENGINES):
        progress(f"{stream.name}, {engines} engines", step, len(ENGINES))
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        local, busiest = [], []
        for seed in seeds:
            evenly, alike = sharing.at_random(stream, engines, seed), sharing.by_affinity(stream, engines)
            both = sharing.run(stream, evenly, total // 2 // engines, total // 2)
            found["own"].append(sharing.run(stream, evenly, total // engines, 0).ratio)
            found["own-affinity"].append(sharing.run(stream, alike, total // engines, 0).ratio)
            found["shared"].append(sharing.run(stream, evenly, 0, total).ratio)
            found[LOCAL_AND_SHARED].append(both.ratio)
            local.append(float(both.local.mean()))
            load = np.bincount(alike[stream.requests], minlength=engines)
            busiest.append(float(load.max() / load.mean()))
        where = f"{stream.name}/engines/{engines}"
        best_of_own = 100 * percentile(found["own"], 0.5)
        for way, ratios in found.items():
            yield Row.of(
                f"{where}/{way}", f"{_WORDS[way]}; {engines} engines", "%", "higher", [100 * one for one in ratios],
                target=best_of_own if way == "shared" else None,
            )  # fmt: skip
        yield Row.of(
            f"{where}/{LOCAL_AND_SHARED}/local", "of these, found at the engine itself", "%", "higher",
            [100 * one for one in local],
        )  # fmt: skip
        yield Row.of(f"{where}/own-affinity/busiest", "the busiest engine's load over the mean", "x", "lower", busiest)


def _growth(stream: Stream, seeds: Sequence[int], progress: Progress) -> Iterator[Row]:
    """How hits grow with traffic, where memory grows with it."""
    for step, share in enumerate(SHARES):
        progress(f"{stream.name}, one request in {share}", step, len(SHARES))
        ratios = []
        for seed in seeds:
            chosen = uniform(np.arange(len(stream.affinity)), 211 + seed) < 1 / share
            part = stream.part(chosen)
            if len(part.ids):
                alone = np.zeros(len(stream.affinity), np.int64)
                ratios.append(100 * sharing.run(part, alone, 0, max(1, part.blocks * MEMORY // 100)).ratio)
        yield Row.of(
            f"{stream.name}/traffic/{share}", f"hits, one request in {share}; memory for {MEMORY} % of its blocks", "%",
            "higher", ratios or 0.0,
        )  # fmt: skip


def _balance(stream: Stream, seeds: Sequence[int]) -> Iterator[Row]:
    """The hottest node, without help, with reads from replicas, with the hottest blocks everywhere."""
    asked = np.bincount(stream.ids, minlength=stream.blocks)
    places = [shards.slots(stream.blocks, seed) for seed in seeds]
    for count in SHARDS:
        ways = {
            "plain": ("no copies", [shards.imbalance(asked, slot, count) for slot in places]),
            "copies": (
                "over the mean shard's without copies, reads spread over a primary and one replica",
                [shards.imbalance(asked, slot, count) / 2 for slot in places],
            ),
            "hottest": (
                f"the {HOTTEST} hottest blocks held everywhere (an engine's own memory tier does so)",
                [shards.imbalance(asked, slot, count, HOTTEST) for slot in places],
            ),
        }
        for way, (words, values) in ways.items():
            yield Row.of(
                f"{stream.name}/shards/{count}/{way}", f"hottest node's load over the mean; {count} shards; {words}",
                "x", "lower", values,
            )  # fmt: skip


def _bytes() -> Iterator[Row]:
    for name, shape in node.TOWERS.items():
        for chain in node.CHAINS:
            yield Row.of(
                f"bytes/{name}/{chain}", f"one picture, {shape[0]}×{shape[1]}, as stored", "KiB", "lower",
                node.block(shape, chain).size / 1024,
            )  # fmt: skip


def _bandwidth(rounds: int, progress: Progress) -> Iterator[Row]:
    sizes = {f"{name}/{chain}": (shape, chain) for name, shape in node.TOWERS.items() for chain in node.CHAINS}
    for name, timing in node.reads(sizes, rounds, progress).items():
        size = node.block(*sizes[name]).size
        yield Row.of(
            f"node/{name}", "read from one server on loopback", "MB/s", "higher",
            [size / seconds / 1e6 for seconds in timing.samples],
        )  # fmt: skip


def _paper(found: Sequence[Stream], rows: Sequence[Row]) -> Iterator[Row]:
    assumed = paper.Assumed()
    values = {row.id: row.ours or 0.0 for row in rows}
    for name in node.TOWERS:
        for chain in node.CHAINS:
            size = values[f"bytes/{name}/{chain}"] * 1024
            yield Row.of(
                f"break-even/{name}/{chain}", "a block may wait so long for its next use, at the assumed prices",
                "min", "higher", paper.break_even_seconds(size, assumed) / 60,
            )  # fmt: skip
    size = values[f"bytes/{PICTURE}/{CHAIN}"] * 1024
    for stream in found:
        where = f"{stream.name}/engines/{ENGINES[-1]}/{LOCAL_AND_SHARED}"
        hit, local = values[where] / 100, values[f"{where}/local"] / 100
        different = stream.blocks / len(stream.ids)
        for gpus in GPUS:
            one = paper.cluster(gpus, hit, local, different, MEMORY / 200, size, assumed)
            said = f"{gpus} GPUs, {one.pictures:.0f} pictures/s, {100 * hit:.0f} % hits"
            columns: tuple[tuple[str, str, str, Better, float], ...] = (
                (
                    "memory",
                    f"for {MEMORY / 2:.0f} % of an hour's different pictures",
                    "GiB",
                    "lower",
                    one.gib,
                ),
                ("network", "read from the shared tier", "Gbit/s", "lower", one.hit_bytes * 8 / 1e9),
                ("shards", f"shards, bound by {one.bound_by}", "shards", "lower", one.shards),
                ("saved", "GPUs' time that hits save", "GPUs", "higher", one.gpus_saved),
                ("money", "saved, less what the nodes cost", "$/h", "higher", one.dollars_saved),
            )
            for column, words, unit, better, value in columns:
                yield Row.of(f"paper/{stream.name}/{gpus}/{column}", f"{words}; {said}", unit, better, value)
