"""What the passes show together: figures beside targets, equality, hits by modality and by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mmcache.lab.demo import walked
from mmcache.lab.demo.manifest import Ask, Manifest
from mmcache.lab.demo.passes import Passes
from mmcache.lab.demo.records import Pass, Record
from mmcache.lab.measure import machine
from mmcache.lab.table import Row, percentile

RESTART_TARGET = 10.0
"""The restarted process must be this many times faster than the first one, on the same requests."""

NAMES = {"image": "pictures", "text": "texts", "audio": "speech"}

REAL = (
    "DINOv2 ViT-S/14, multilingual-e5-small and Whisper base on this machine's CPU",
    "easy-VQA pictures, video frames, one photograph, Python's reference manual, two speech recordings",
    "three processes, one after the other, over the same files and requests",
)
SIMULATED = (
    "popularity and order of the requests (Zipf 0.9, fixed seed)",
    "which repeats are re-encoded, resized, cropped or respelled",
    "twelve of the texts were written for the demo",
)
VISITS_REAL = "the visits: two caches after each other in one process, pictures of two clips and of easy-VQA"
VISITS_SIMULATED = (
    "who visits which pages, in which order (three tours; each page is left out by some), and {seconds:g} s of reading "
    "a page; earlier visitors do not read"
)


@dataclass(frozen=True)
class Share:
    """Requests of one group in one pass."""

    asked: int
    hit: int
    """Nothing was computed."""
    part: int
    """Some of a crop's tiles were computed."""
    blocks: int
    computed: int
    """Of the blocks."""

    @property
    def ratio(self) -> float:
        """Blocks that were not computed, 0…1."""
        return 1 - self.computed / self.blocks if self.blocks else 0.0


@dataclass(frozen=True)
class Outcome:
    """The finished demo."""

    manifest: Manifest
    passes: Passes

    @property
    def trio(self) -> dict[str, Pass]:
        """The three passes over the whole stream, by name."""
        return {"no cache": self.passes.plain, "first": self.passes.first, "restarted": self.passes.restarted}

    def latencies(self, which: Pass) -> list[float]:
        """Seconds a request, in order."""
        return [record.seconds for record in which.records]

    def shares(self, which: Pass, group: Callable[[Ask], str]) -> dict[str, Share]:
        """Hits in groups of requests, in order of appearance."""
        found: dict[str, list[Record]] = {}
        for ask, record in zip(self.manifest.asks, which.records, strict=True):
            found.setdefault(group(ask), []).append(record)
        return {name: _share(records) for name, records in found.items()}

    def by_modality(self, which: Pass) -> dict[str, Share]:
        """Pictures, texts, speech."""
        return self.shares(which, lambda ask: NAMES[ask.modality])

    def by_kind(self, which: Pass) -> dict[str, Share]:
        """New, repeat, re-encoded…"""
        return self.shares(which, lambda ask: ask.kind)

    @property
    def unequal(self) -> int:
        """Outputs of both cached passes that are not bit-equal to the output without a cache. A wrong hit is one."""
        plain = self.passes.plain.records
        return sum(
            truth.digest != record.digest
            for which in (self.passes.first, self.passes.restarted)
            for truth, record in zip(plain, which.records, strict=True)
        )

    @property
    def visits_unequal(self) -> int:
        """Outputs of the newcomer's walk that differ between the two caches."""
        visited = self.passes.visited
        if visited is None:
            return 0
        return sum(one.digest != other.digest for one, other in zip(visited.without, visited.foreseen, strict=True))

    @property
    def real(self) -> tuple[str, ...]:
        """What of it was real, a line each."""
        return (*REAL, VISITS_REAL) if self.passes.visited else REAL

    @property
    def simulated(self) -> tuple[str, ...]:
        """What was imitated, a line each."""
        walks = self.manifest.walks
        return SIMULATED if walks is None else (*SIMULATED, VISITS_SIMULATED.format(seconds=walks.reading_seconds))

    @property
    def restart_speedup(self) -> float:
        """First cached process ÷ restarted process, each from opening to closing, the first request included."""
        return self.passes.first.wall_seconds / self.passes.restarted.wall_seconds

    @property
    def ok(self) -> bool:
        """Equal outputs, bounds kept, nothing computed that was stored."""
        lossy = self.passes.lossy
        return self.unequal == self.visits_unequal == 0 and lossy.largest_share <= 1 and lossy.computed_again == 0

    def rows(self) -> list[Row]:
        """The headline figures."""
        plain, first, restarted = self.trio.values()
        lossy, seconds = self.passes.lossy, self.passes.process_seconds

        def ratio(id: str, metric: str, ours: float, target: float | None = None) -> Row:
            return Row.of(id, metric, "x", "higher", ours, target=target)

        rows = [
            ratio("restart/speedup", "first cached process ÷ restarted one", self.restart_speedup, RESTART_TARGET),
            ratio("restart/whole-process", "the same with interpreter start and imports", seconds[1] / seconds[2]),
            ratio("restart/no-cache", "no cache ÷ restarted process", plain.wall_seconds / restarted.wall_seconds),
            ratio("first/no-cache", "no cache ÷ first cached process", plain.wall_seconds / first.wall_seconds),
            Row.of("equality", "outputs that differ in any bit", "outputs", "lower", self.unequal, target=0),
            Row.of("int4/error", "largest error ÷ its bound", "x", "lower", lossy.largest_share, target=1),
            Row.of("int4/bytes", "stored ÷ float16 bytes", "%", "lower", 200 * lossy.stored_bytes / lossy.exact_bytes),
        ]
        for name, which in self.trio.items():
            latencies, key = self.latencies(which), name.replace(" ", "-")
            rows += [
                Row.of(f"{key}/p50", "latency, median", "ms", "lower", 1e3 * percentile(latencies, 0.5)),
                Row.of(f"{key}/p99", "latency, p99", "ms", "lower", 1e3 * percentile(latencies, 0.99)),
                Row.of(f"{key}/first-request", "latency of the first request", "ms", "lower", 1e3 * latencies[0]),
                Row.of(f"{key}/encoders", "time inside the models", "s", "lower", which.encoder_seconds),
                Row.of(f"{key}/wall", "opening, all requests, closing", "s", "lower", which.wall_seconds),
            ]
        return [*rows, *(walked.rows(self.passes.visited) if self.passes.visited else ())]

    def as_json(self) -> dict[str, Any]:
        """The whole outcome, the format of lab tables plus `passes`, `equal` and `int4`."""
        lossy = self.passes.lossy
        return {
            "name": "demo",
            "quick": self.manifest.quick,
            "seeds": [self.manifest.seed],
            "real": [*self.real, machine()],
            "simulated": list(self.simulated),
            "requests": len(self.manifest.asks),
            "equal": self.unequal == 0,
            "unequal_outputs": self.unequal,
            "ok": self.ok,
            "rows": [row.as_json() for row in self.rows()],
            "passes": {
                name: self._pass_json(which, seconds)
                for (name, which), seconds in zip(self.trio.items(), self.passes.process_seconds, strict=True)
            },
            "int4": {
                "pictures": lossy.pictures,
                "stored_bytes": lossy.stored_bytes,
                "float32_bytes": lossy.exact_bytes,
                "largest_error": lossy.largest_error,
                "largest_share_of_bound": lossy.largest_share,
                "mean_cosine": lossy.mean_cosine,
                "computed_again": lossy.computed_again,
            },
        } | ({"visits": walked.as_json(self.passes.visited, self.visits_unequal)} if self.passes.visited else {})

    def _pass_json(self, which: Pass, process_seconds: float) -> dict[str, Any]:
        return {
            "wall_seconds": which.wall_seconds,
            "process_seconds": process_seconds,
            "open_seconds": which.open_seconds,
            "close_seconds": which.close_seconds,
            "load_seconds": which.load_seconds,
            "encoder_seconds": which.encoder_seconds,
            "computed": sum(record.computed for record in which.records),
            "blocks": sum(record.blocks for record in which.records),
            "output_bytes": sum(record.nbytes for record in which.records),
            "stored_bytes": which.stored_bytes,
            "hits": which.hits,
            "misses": which.misses,
            "miss_reasons": which.miss_reasons,
            "by_modality": {name: _share_json(share) for name, share in self.by_modality(which).items()},
            "by_kind": {name: _share_json(share) for name, share in self.by_kind(which).items()},
        }


def _share(records: Iterable[Record]) -> Share:
    states = Counter[str]()
    blocks = computed = 0
    for record in records:
        blocks += record.blocks
        computed += record.computed
        states["hit" if not record.computed else "part" if record.computed < record.blocks else "miss"] += 1
    return Share(states.total(), states["hit"], states["part"], blocks, computed)


def _share_json(share: Share) -> dict[str, int | float]:
    return {
        "asked": share.asked,
        "hit": share.hit,
        "part": share.part,
        "blocks": share.blocks,
        "computed": share.computed,
        "hit_ratio": share.ratio,
    }
