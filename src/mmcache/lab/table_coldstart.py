"""Table `coldstart`: how soon a new process answers as well as a warm one, with and without a snapshot (D7).

A sample of earlier traffic is encoded offline and saved as one snapshot file. Then fresh traffic from the same
popularity arrives at a cold process: once empty, once after loading the file, once after loading a file made before
a third of the items were replaced. Each runs until the stream ends; the steady hit rate is that of the last quarter
of the empty run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mmcache import snapshot
from mmcache.cache import Cache
from mmcache.lab import data
from mmcache.lab.models import ImageEncoder, TextEncoder
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.settings import DiskSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mmcache.tiers.disk import DiskTier

WINDOW = 40
"""Requests over which the hit rate is taken."""
SHARE = 0.9
"""Of the steady hit rate: when this is reached the process counts as warm."""
ZIPF_EXPONENT = 0.9
SECRET = bytes(range(32))
"""One realm for the process that saves and those that load; the files are temporary."""

Item = Path | str
"""A picture file or a text."""


@dataclass(frozen=True)
class Stream:
    """One seed's items and requests."""

    sample: tuple[Item, ...]
    """Earlier traffic, as asked for."""
    stale: tuple[Item, ...]
    """The same number of requests from before a third of the items were replaced."""
    fresh: tuple[Item, ...]
    """What the cold process gets."""


@dataclass(frozen=True)
class Run:
    """One cold process's life."""

    ready: float
    """Seconds until the first request could be answered: opening, and loading the snapshot."""
    seconds: tuple[float, ...]
    """Of each request."""
    hits: tuple[bool, ...]

    def rates(self) -> list[float]:
        """Hit rate over the `WINDOW` requests that end at each; shorter at the beginning."""
        totals = np.cumsum([0, *self.hits])
        return [float(totals[end] - totals[max(0, end - WINDOW)]) / min(end, WINDOW) for end in range(1, len(totals))]

    def steady(self) -> float:
        """Hit rate of the last quarter."""
        tail = self.hits[-(len(self.hits) // 4) :]
        return sum(tail) / len(tail)

    def warm(self, rate: float) -> int:
        """Requests until a whole window's hit rate reaches `rate`; all of them where it never does."""
        rates = self.rates()
        return next((n + 1 for n in range(WINDOW - 1, len(rates)) if rates[n] >= rate), len(rates))

    def elapsed(self, requests: int) -> float:
        """Seconds of waiting until that many requests were answered."""
        return self.ready + sum(self.seconds[:requests])


def draw(seed: int, quick: bool) -> Stream:
    """Zipf popularity over pictures and texts."""
    random = np.random.default_rng(seed)
    count, asked = (60, 160) if quick else (240, 800)
    files, texts = data.shapes(), [*dict.fromkeys(q for q, _ in data.questions()), *data.paragraphs()]
    pictures = [files[int(number)] for number in random.choice(len(files), count, replace=False)]
    pool: list[Item] = [item for pair in zip(pictures, texts, strict=False) for item in pair][:count]
    spare: list[Item] = list(pictures[count // 2 :])
    weights = np.arange(1, count + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    shares = random.permutation(weights / weights.sum())

    def ask(items: Sequence[Item], requests: int) -> tuple[Item, ...]:
        return tuple(items[int(place)] for place in random.choice(count, requests, p=shares))

    replaced = set(random.choice(count, count // 3, replace=False).tolist())
    old = [spare[place % len(spare)] if place in replaced else item for place, item in enumerate(pool)]
    return Stream(ask(pool, asked // 2), ask(old, asked // 2), ask(pool, asked))


@contextmanager
def opened(root: Path, encoders: tuple[ImageEncoder, TextEncoder]) -> Iterator[tuple[Cache, Any]]:
    """A cache, and a function that answers an item and says whether that was a hit."""
    image, text = encoders
    with Cache(root, memory="512MiB", disk="2GiB", secret=SECRET) as cache:
        computed = 0

        def count(value: Any) -> Any:
            nonlocal computed
            computed += 1
            return value

        picture = cache.wrap(lambda one: count(image.encode(one)), modality="image", signature=image.signature)
        words = cache.wrap(lambda one: count(text.encode(one)), modality="text", signature=text.signature)

        def answer(item: Item) -> bool:
            before = computed
            (picture if isinstance(item, Path) else words)(item)
            return computed == before

        yield cache, answer


@contextmanager
def disk_tier(root: Path) -> Iterator[DiskTier]:
    """The folder's disk tier alone, for the snapshot."""
    from mmcache.tiers.disk import DiskTier

    tier = DiskTier(root, DiskSettings())
    try:
        yield tier
    finally:
        tier.close()


def prepare(items: Sequence[Item], folder: Path, encoders: tuple[ImageEncoder, TextEncoder]) -> Path:
    """Encode a sample offline and save it; the snapshot's path."""
    root, file = folder / "offline", folder / "warm.safetensors"
    with opened(root, encoders) as (_, answer):
        for item in dict.fromkeys(items):
            answer(item)
    with disk_tier(root) as tier:
        snapshot.save(tier, file, secret=SECRET)
    return file


def live(items: Sequence[Item], folder: Path, encoders: tuple[ImageEncoder, TextEncoder], warm: Path | None) -> Run:
    """Open a cold cache, load `warm` into it if given, and serve."""
    start = time.perf_counter()
    if warm is not None:
        with disk_tier(folder) as tier:
            snapshot.load(warm, tier, secret=SECRET)
    with opened(folder, encoders) as (_, answer):
        ready, seconds, hits = time.perf_counter() - start, list[float](), list[bool]()
        for item in items:
            begin = time.perf_counter()
            hits.append(answer(item))
            seconds.append(time.perf_counter() - begin)
    return Run(ready, tuple(seconds), tuple(hits))


class ColdStartTable(Table):
    """Requests and seconds until a cold process is warm."""

    name: ClassVar[str] = "coldstart"
    title: ClassVar[str] = "Cold start: until 90 % of the steady hit rate, with and without a snapshot"

    def __init__(self) -> None:
        self._curves: dict[str, list[float]] = {}

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real encoders; traffic drawn from `seeds`. Raises `AssetError`."""
        encoders = (ImageEncoder(), TextEncoder())
        for encoder in encoders:
            encoder.load()
        runs: dict[str, list[Run]] = {"empty": [], "snapshot": [], "stale-snapshot": []}
        steps = len(seeds) * len(runs)
        for number, seed in enumerate(seeds):
            stream = draw(seed, quick)
            with tempfile.TemporaryDirectory(prefix="mmcache-coldstart-") as name:
                folder = Path(name)
                for place, (arm, sample) in enumerate(zip(runs, ((), stream.sample, stream.stale), strict=True)):
                    progress(arm, number * len(runs) + place, steps)
                    warm = prepare(sample, folder / f"{arm}-sample", encoders) if sample else None
                    runs[arm].append(live(stream.fresh, folder / arm, encoders, warm))
        progress("done", steps, steps)
        self._curves = {arm: np.mean([run.rates() for run in found], axis=0).tolist() for arm, found in runs.items()}
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "DINOv2 ViT-S/14 and multilingual-e5-small; easy-VQA pictures and questions, Python's manual",
                "the product's cache, disk tier and snapshot file",
            ),
            (
                f"popularity and order of the requests (Zipf {ZIPF_EXPONENT})",
                "models are loaded before the clock starts, with a snapshot and without",
                "the stale sample: a third of the items replaced",
            ),
            tuple(rows(runs)),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Hit rate over requests, the mean of all seeds."""
        if not self._curves:
            super().plot(result, figure)
            return
        figure.set_size_inches(8, 3.4)
        axes = figure.subplots()
        for (arm, rates), colour in zip(self._curves.items(), ("#8793a6", "#2f7d5b", "#b5482f"), strict=True):
            axes.plot(range(1, len(rates) + 1), [100 * rate for rate in rates], color=colour, label=arm)
        axes.set_xlabel("requests since the start")
        axes.set_ylabel(f"hit rate of the last {WINDOW}, %")
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def rows(runs: dict[str, list[Run]]) -> Iterator[Row]:
    """Two rows an arm, and how much sooner the snapshot is warm."""
    goals = [SHARE * run.steady() for run in runs["empty"]]
    steady = [100 * run.steady() for run in runs["empty"]]
    yield Row.of("steady", "hit rate of the last quarter, started empty", "%", "higher", steady)
    sooner: dict[str, list[float]] = {}
    for arm, found in runs.items():
        needed = [run.warm(goal) for run, goal in zip(found, goals, strict=True)]
        waits = [run.elapsed(count) for run, count in zip(found, needed, strict=True)]
        sooner[arm] = waits
        yield Row.of(f"{arm}/requests", f"requests until {SHARE:.0%} of that", "requests", "lower", needed)
        yield Row.of(f"{arm}/seconds", "seconds of waiting until then, loading included", "s", "lower", waits)
        first = [100 * run.rates()[WINDOW - 1] for run in found]
        yield Row.of(f"{arm}/first-window", f"hit rate of the first {WINDOW} requests", "%", "higher", first)
    for arm in ("snapshot", "stale-snapshot"):
        ratios = [cold / warm for cold, warm in zip(sooner["empty"], sooner[arm], strict=True)]
        target = 1.0 if arm == "snapshot" else None
        yield Row.of(f"{arm}/sooner", "seconds until warm, empty ÷ this", "x", "higher", ratios, target=target)
