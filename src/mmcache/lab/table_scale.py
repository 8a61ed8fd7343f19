"""Table `scale`: a cluster that grows and shrinks under load, and while something in it dies. Real processes."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.load.blocks import mean_bytes, size_of
from mmcache.lab.load.summary import times
from mmcache.lab.scale.burst import burst
from mmcache.lab.scale.drawn import draw
from mmcache.lab.scale.most import WAYS, most
from mmcache.lab.scale.reshard import reshard
from mmcache.lab.scale.rival import by_tool, remapped
from mmcache.lab.scale.rows import bursting, resharding
from mmcache.lab.scale.trial import Extent, Trial
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import AssetError, ScaleError
from mmcache.scale.spec import BurstSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALKEY, REDIS = "valkey 9", "redis 7.0"
COLUMNS = ("trial", "seed", "second", "shards", "slots", "requests", "hits_percent", "p50_ms", "p99_ms", "unanswered")
"""Of `scale.csv`."""
_KEYS = 10_000
_ZIPF = 0.9

Attempt = Callable[[Path, int, Progress], Trial]


class ScaleTable(Table):
    """From burst to capacity; keys lost, wrong answers, hits and P99 while shards come, go and die."""

    name: ClassVar[str] = "scale"
    title: ClassVar[str] = "Scale: a cluster that grows and shrinks under load, and loses nothing"
    remark: ClassVar[str] = (
        "No figure is published for any of this; the targets (nothing lost, nothing wrong) are ours. Every key has one "
        "writer, which numbers its writes: `lost` counts acknowledged writes that are absent or older, while it runs "
        "and in a last look at all keys; `returned` those that were not to be found for a while (a slot between two "
        "owners of which one died) and came back as they were; `wrong` counts blocks of which any byte is not as "
        "somebody stored it. `primary-killed` kills one that gives slots when half are over, `target-killed` one that "
        "gets them, `controller-killed` the supervisor, which is started again two seconds later. Replication is "
        "asynchronous: of what a primary acknowledged in the last moment before it is killed its replica may know "
        "nothing. `lost-unreplicated` counts that, by the replication offsets of both; `lost` all else. Times are of "
        "an open loop, from when a request was to come; what is due together is asked together, so it waits for the "
        "slowest node. A node that does not answer is left alone for a second or more: its keys are missed meanwhile "
        "(`unanswered`), which a cache answers by computing. `silence` is the longest that one key had no answer, "
        "asked again every tenth of a second. `speed` counts bytes of blocks whose slot changed its shard, from the "
        "first slot to the last, including the start of the second shard in between: one shard at a time. All runs on "
        "one machine of few cores, so that servers, replicas, the generator and the copying compete, and more shards "
        "bring no more capacity here: what is measured is how long it takes until they serve. `redis-cli` moves slots "
        "one by one and keys ten at a time; its nodes have no replicas to be fed, ours have one each. Ours sends up to "
        "256 KiB of keys, or one block, in one go, which its source serves nobody meanwhile: compare `p99-out`. Where "
        "servers move key by key, a source forgets a key when the target has it; if the target dies before its replica "
        "has it too, it is lost, and counts as `lost` (`key-by-key-target-killed`): one load, since the next is sent "
        "when a replica has the last. Atomic migration loses none. `remap` is the hit rate at the moment when clients "
        "that spread keys by themselves are told of two more servers: what is not found there is computed again."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self) -> None:
        self.trials: list[tuple[int, Trial]] = []
        """Of the last run, with their seeds."""

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Full: about eight minutes, 1 GB of blocks, the default burst. Quick: 30 MB, a window of two seconds."""
        self.trials, absent = [], []
        rows: list[Row] = []
        seeds = tuple(seeds[:1])  # each trial is long; its inner repetition is thousands of requests
        with tempfile.TemporaryDirectory(prefix="mmcache-scale-") as folder:
            for number, (name, attempt) in enumerate(_attempts(quick).items()):
                try:
                    trial = attempt(Path(folder) / str(number), seeds[0], progress)
                except (AssetError, ScaleError) as error:
                    absent.append(f"{name} could not be run here: {error}")
                    continue
                self.trials.append((seeds[0], trial))
                rows += bursting(trial) if name == "burst" else resharding(trial)
            try:
                rows += _most(Path(folder), quick, seeds[0], progress)
            except (AssetError, ScaleError) as error:
                absent.append(f"generator could not be run here: {error}")
        rows += [
            Row.of(
                f"remap/{way}", "reads that still are hits when three servers become five", "%", "higher", 100 * share
            )
            for way, share in remapped(_KEYS, _ZIPF).items()
        ]
        versions = ", ".join(sorted({trial.server for _, trial in self.trials}))
        return Result(
            self.name, quick, seeds,
            (
                f"server processes on loopback ({versions}), one replica a shard, started and resharded by "
                "`mmcache cluster`'s own supervisor in real time; SIGKILL",
                _load_words(quick),
                *absent,
            ),
            (
                "blocks are bytes that follow from number and version; keys by Zipf's law (0.9), arrivals Poisson",
                "burst: the hour before was told to the detector in virtual time, at the rate measured first",
                "remap: computed from the keys' shares of requests, no server runs",
            ),
            tuple(rows),
        )  # fmt: skip

    def pages(self, result: Result) -> Mapping[str, str]:
        """`scale.csv`: a line a trial and second."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        for seed, trial in self.trials:
            for second, shards, slots, counts in trial.lines():
                took, share = times(counts), counts.hit_share
                lines.writerow([
                    trial.name, seed, int(second), shards, slots, counts.requests,
                    "" if share is None else round(100 * share, 2), took["p50_ms"], took["p99_ms"], counts.failed,
                ])  # fmt: skip
        return {"csv": text.getvalue()}

    def plot(self, result: Result, figure: Figure) -> None:
        """Hits, shards and P99 over time, a line a trial."""
        if self.trials:
            draw([trial for _, trial in self.trials], figure)
        else:
            super().plot(result, figure)


def _extent(quick: bool) -> Extent:
    if quick:
        return Extent(30_000_000, 200.0, 1.0, memory_bytes=256 << 20)
    return Extent(1_000_000_000, 200.0, 4.0)


def _attempts(quick: bool) -> dict[str, Attempt]:
    large = _extent(quick)
    small = Extent(40_000_000, 1500.0, 20.0, "4KiB", 256 << 20)
    if quick:
        small = Extent(10_000_000, 400.0, 0.5, "4KiB", 256 << 20)
    spec = BurstSpec(window_seconds=2.0) if quick else BurstSpec()
    made: dict[str, Attempt] = {
        "burst": lambda at, seed, told: burst("burst", at, small, spec, 1.0 if quick else 5.0, seed, told),
        "atomic": lambda at, seed, told: reshard("atomic", at, VALKEY, large, seed, told),
        "key-by-key": lambda at, seed, told: reshard("key-by-key", at, REDIS, large, seed, told),
        "primary-killed": lambda at, seed, told: reshard("primary-killed", at, VALKEY, large, seed, told, "primary"),
        "target-killed": lambda at, seed, told: reshard("target-killed", at, VALKEY, large, seed, told, "target"),
        "key-by-key-target-killed": lambda at, seed, told: reshard(
            "key-by-key-target-killed", at, REDIS, large, seed, told, "target"
        ),
        "controller-killed": lambda at, seed, told: reshard(
            "controller-killed", at, VALKEY, large, seed, told, "supervisor"
        ),
        "redis-cli": lambda at, seed, told: by_tool("redis-cli", at, REDIS, large, seed, told),
    }
    return {name: made[name] for name in ("burst", "primary-killed")} if quick else made


def _most(folder: Path, quick: bool, seed: int, progress: Progress) -> list[Row]:
    """How much the generator can ask for."""
    rows = []
    for way, (size, reads) in WAYS.items():
        found = most(folder / way, VALKEY, way, 1.0 if quick else 4.0, seed, progress)
        words = f"{size} B, {100 * reads:.0f} % reads, on the cores that the servers share"
        rows += [
            Row.of(
                f"generator/{way}",
                f"most that it asked and had answered and checked: {words}",
                "1/s",
                "higher",
                found.qps,
            ),
            Row.of(f"generator/{way}/busy", "of a core that it took for that", "%", "lower", 100 * found.busy),
        ]
        if quick:
            break
    return rows


def _load_words(quick: bool) -> str:
    large = _extent(quick)
    sizes = sorted(size_of(large.sizes))
    return (
        f"the product's own shared tier under load: {large.keys:,} blocks of {sizes[0] / 1e3:.1f} KB to "
        f"{sizes[-1] / 1e6:.1f} MB (mean {mean_bytes(size_of(large.sizes)) / 1e3:.0f} KB: raw text embeddings, INT4 "
        f"features of pictures, sound and video, as packaged encoders give them), {large.qps:g} requests a second, "
        "80 % reads; burst: 4 KiB, 95 % reads; every byte that is read is checked"
    )
