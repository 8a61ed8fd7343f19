"""Table `placement`: where blocks lie that are used together, and what that does to gathering them (B4)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mmcache.lab.measure import busy, interleave, machine
from mmcache.lab.placement_arms import EVERY, PAGES, Arm, arm, arrivals, churned, likeness, measured_price
from mmcache.lab.placement_space import alignment_rows, deviation_rows, product_rows
from mmcache.lab.placement_stream import LANGUAGES, PAGE, TEXTS, Corpus, Request, corpus, stream
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import IntegrityError
from mmcache.placement.moves import Price

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = {"none": (68.3, 42.7), "static": (41.1, 29.5), "dynamic": (12.9, 11.2)}
"""Arm → fragmentation in %, gather time in ms."""
GIVEN = Price(seam=1.0, page=1.0)
"""A seam costs as much as a page: about what a request to a disk or over a bus costs beside 48 KiB."""


class PlacementTable(Table):
    """None, static, dynamic."""

    name: ClassVar[str] = "placement"
    title: ClassVar[str] = "Placement: pages in runs and gather time, for blocks where they came, laid once, and moved"
    remark: ClassVar[str] = (
        "Fragmentation is 1 − pages in runs ÷ pages over a request's pages, read in ascending order; a page is in a "
        "run when the page read before or after it is its neighbour; the mean over requests. The four pages of a "
        "picture that lie together are in a run by themselves, so `none` is not 100 %. `static` is laid by likeness, "
        "and the stream asks by likeness (of a space that all pairs gave), so it does better than where people ask. "
        "`dynamic` over all requests contains two times of learning, at the start and at the drift; `before` and "
        "`after` are the quarters in which it has learned. It cannot reach 0: a text that is near to several pictures "
        "can lie beside two blocks only. From memory the target is missed for another reason than fragmentation: "
        "most of a gather is copying pages of 48 KiB, which takes the same wherever they lie (`gather/speed-up`). "
        "`price` is what a seam costs when pages come from all over an arena beyond the caches, so the most that "
        "closing one can save, and `price/uses` after how many gathers that has paid for two moves; "
        "`dynamic-measured` moves only what pays by that. From a file, a run is one read. Learning and planning of a "
        "tick are bounded, so a plan takes several ticks, which costs `dynamic` about two points of all requests; "
        "`tick` is CPU time of learning, planning and copying. No "
        "static row without a learned map: vectors of both encoders have no common space, and not even a common "
        "width. `align`: from so few pairs a linear map explains little of the variance of names it has not seen "
        "(100 % = as good as their mean); online is exactly the closed form of the same pairs, and `online` differs "
        "from `closed-form` by pairs since the map was last solved for. `deviation`: noise of one length in a random "
        "direction leaves the nearest what it was and lowers every cosine alike, so hits fall all at once where the "
        "cut-off is reached (`edge`), which near-equal emoji put very high; the published loss of 42 % is that of "
        "other data. TFLOP/s need a GPU. Placement is of the arena, which no tier uses yet."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Raises `AssetError`, and `IntegrityError` should a move have lost a byte."""
        warning, seeds = busy(), seeds[:1] if quick else seeds
        found = corpus(120 if quick else 400, not quick, progress)
        price = measured_price(found)
        asked = 2000 if quick else 8000
        arms: dict[str, list[Arm]] = {}
        last: list[Request] = []
        for done, seed in enumerate(seeds):
            requests = list(stream(found, asked, seed))
            last = requests[-len(requests) // 8 :]
            laid = likeness(found, seed)
            made = {
                "none": churned(found, seed),
                "static": arm(found, laid),
                "dynamic": arm(found, laid, GIVEN),
                "dynamic-from-none": arm(found, arrivals(found, seed), GIVEN),
                "dynamic-measured": arm(found, laid, price),
            }
            for name, one in made.items():
                one.serve(requests)
                if not one.whole(found):
                    raise IntegrityError(f"placement: the arm {name} gives other bytes than were stored")
                kept = one if done == len(seeds) - 1 else _figures(one)
                arms.setdefault(name, []).append(kept)
            progress("streams", done + 1, len(seeds))
        rows = sorted(
            [*_laid(arms), *_times(arms, last, quick)], key=lambda row: row.published is None
        )  # verdict first
        rows += _costs(arms, price)
        rows += alignment_rows(found, seeds)
        rows += deviation_rows(found, seeds)
        rows += product_rows(quick)
        return Result(self.name, quick, tuple(seeds), _real(found, quick), (*_simulated(asked), *warning), tuple(rows))

    def plot(self, result: Result, figure: Figure) -> None:
        """Fragmentation and gather times, beside the published ones."""
        found = {row.id: row for row in result.rows}
        figure.set_size_inches(8, 2.8)
        panels = figure.subplots(1, 3)
        for axes, what, unit in zip(panels, ("fragmentation", "gather", "gather-file"), ("%", "µs", "µs"), strict=True):
            names = [name for name in PUBLISHED if f"{name}/{what}" in found]
            axes.bar(names, [found[f"{name}/{what}"].ours or 0.0 for name in names], color="#4a6fa5")
            if what == "fragmentation":
                axes.plot(names, [PUBLISHED[name][0] for name in names], "D", color="black", label="published")
                axes.legend(frameon=False)
            axes.set_title(f"{what}, {unit}", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def _figures(one: Arm) -> Arm:
    """Without its arena: only the last seed's is gathered from."""
    return Arm(None, {}, None, one.shares, one.cuts, one.ticks, one.copied)  # type: ignore[arg-type]


def _laid(arms: dict[str, list[Arm]]) -> list[Row]:
    rows = []
    for name, made in arms.items():
        published = PUBLISHED.get(name, (None, None))[0]
        half = len(made[0].shares) // 2
        parts = {"": slice(None), "/before": slice(half // 2, half), "/after": slice(half + half // 2, None)}
        words = {"": "all requests", "/before": "2nd quarter", "/after": "4th quarter, after the drift"}
        for part, window in parts.items():
            rows.append(
                Row.of(
                    f"{name}/fragmentation{part}", f"pages in no run, {words[part]}", "%", "lower",
                    [100 * float(np.mean(one.shares[window])) for one in made],
                    target=published if name == "dynamic" and not part else None,
                    published=published if not part else None,
                )
            )  # fmt: skip
        cuts = [float(np.mean(one.cuts)) for one in made]
        rows.append(Row.of(f"{name}/runs", "runs a request, all requests", "runs", "lower", cuts))
    return rows


def _times(arms: dict[str, list[Arm]], last: list[Request], quick: bool) -> list[Row]:
    """Gathering the stream's last requests from where their blocks lie in the end."""
    sample = last[:: max(1, len(last) // 200)][:200]
    most = max(len(made[-1].pages(one)) for made in arms.values() for one in sample)
    out = np.empty((most, *PAGE), np.float16)
    calls: dict[str, Callable[[], object]] = {}
    for name in PUBLISHED:
        one = arms[name][-1]
        lists = [[one.lists[block] for block in request.blocks] for request in sample]
        calls[name] = lambda one=one, lists=lists: [one.arena.gather_pages(each, out) for each in lists]  # type: ignore[misc]
    words = {
        "gather": "one request, from memory, CPU time (published: ms)",
        "gather-file": "one request, from a file that is in no page cache, a read for each run",
    }
    times = interleave(calls, rounds=7 if quick else 41, per=len(sample), least_seconds=0.0, clock=thread_time)
    rows = _ratios("gather", words["gather"], {name: timing.samples for name, timing in times.items()})
    rows += _ratios("gather-file", words["gather-file"], _from_files(arms, sample[:: 4 if quick else 1], out))
    return rows


def _ratios(way: str, words: str, seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    rows = []
    for name in PUBLISHED:
        rows.append(Row.of(f"{name}/{way}", words, "µs", "lower", [1e6 * value for value in seconds[name]]))
        if name != "none":
            published = PUBLISHED["none"][1] / PUBLISHED[name][1]
            ratios = [none / ours for none, ours in zip(seconds["none"], seconds[name], strict=True)]
            rows.append(
                Row.of(
                    f"{name}/{way}/speed-up", f"{words.split(' (')[0]}: none ÷ {name}", "x", "higher", ratios,
                    target=published if way == "gather" else None, published=published,
                )
            )  # fmt: skip
    return rows


def _from_files(arms: dict[str, list[Arm]], sample: list[Request], out: Any) -> dict[str, Sequence[float]]:
    """Seconds a request, a mean for each of several rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in PUBLISHED}

    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in PUBLISHED:
            path = os.path.join(folder, name)
            arms[name][-1].arena.data.tofile(path)
            files[name] = os.open(path, os.O_RDONLY)
            os.fsync(files[name])
        size = out[0].nbytes
        try:
            for turn in range(5):
                for name in PUBLISHED if turn % 2 else reversed(PUBLISHED):
                    took = 0.0
                    for request in sample:
                        os.posix_fadvise(files[name], 0, 0, os.POSIX_FADV_DONTNEED)
                        pages = sorted(arms[name][-1].pages(request))
                        cuts = [0, *(np.flatnonzero(np.diff(pages) != 1) + 1).tolist(), len(pages)]
                        start = perf_counter()
                        for begin, end in pairwise(cuts):
                            os.preadv(files[name], [memoryview(out[begin:end]).cast("B")], pages[begin] * size)
                        took += perf_counter() - start
                    seconds[name].append(took / len(sample))
        finally:
            for file in files.values():
                os.close(file)
    return dict(seconds)


def _costs(arms: dict[str, list[Arm]], price: Price) -> list[Row]:
    made = arms["dynamic"]
    ticks = [1e3 * float(np.percentile(one.ticks, 95)) for one in made]
    worst = [1e3 * max(one.ticks) for one in made]
    copied = [1000 * one.copied / len(one.shares) for one in made]
    late = [float(np.sum(np.array(arms["dynamic-measured"][i].copied))) for i in range(len(made))]
    return [
        Row.of("dynamic/copied", "pages copied", "pages/1000 requests", "lower", copied),
        Row.of("dynamic/tick", "a tick, P95, CPU time", "ms", "lower", ticks),
        Row.of("dynamic/tick-longest", "a tick, the longest, CPU time", "ms", "lower", worst),
        Row.of("dynamic-measured/copied", "pages copied in all", "pages", "lower", late),
        Row.of("price/seam", "what a seam costs a gather from memory, CPU time", "ns", "lower", 1e9 * price.seam),
        Row.of("price/page", "what moving a page costs, CPU time", "ns", "lower", 1e9 * price.page),
        Row.of("price/uses", "gathers until closing a seam has paid", "gathers", "lower", 2 * price.page / price.seam),
    ]


def _real(found: Corpus, quick: bool) -> tuple[str, ...]:
    pages = sum(-(-len(block) // PAGE[0]) for block in found.blocks.values())
    return (
        f"DINOv2's patch tokens [256, 384] of {len(found)} emoji (Noto), e5's vectors of their names in "
        f"{' and '.join(LANGUAGES)}: {len(found.blocks)} blocks in {pages} pages of {PAGE[0]} × {PAGE[1]} FP16",
        "the arena, the mover and the alignment of this package; every gather and every move copies bytes, and all "
        "blocks are compared with what was stored at the end",
        machine(),
    )


def _simulated(asked: int) -> tuple[str, ...]:
    return (
        f"the {asked} requests of a seed: a picture by Zipf's law (0.9) and one shown with it, each with its {TEXTS} "
        "nearest texts; halfway another language, other popular pictures, other pictures shown together",
        "`none`: blocks in the order of chance, a third of them evicted and stored again three times",
        f"`static`: laid once by the nearest texts in a space that 30 % of the pairs gave; `dynamic`: begins so, and "
        f"may copy {PAGES} pages after every {EVERY} requests, a seam priced like a page; `dynamic-measured`: priced "
        "as measured here",
    )
