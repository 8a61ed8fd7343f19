"""One load on one cluster, and what is done to it meanwhile; what callers saw, phase by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mmcache.lab.load.blocks import Blocks, mean_bytes, size_of
from mmcache.lab.load.counts import BIN_SECONDS, Counts, Lost
from mmcache.lab.load.crowd import Crowd, Outcome
from mmcache.lab.load.job import Job
from mmcache.lab.scale.watch import Sight, Watch
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError
from mmcache.scale.local.handle import Handle
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.slots import slot_of

PATIENCE_SECONDS = 0.5
"""Of the load's clients, for a node: the product's default."""
_FOR_EVER = 7200.0
_LONGEST_FILL = 300.0


@dataclass(frozen=True)
class Extent:
    """How large a trial is."""

    total_bytes: int
    """Of all blocks."""
    qps: float
    calm_seconds: float
    """Before, between and after."""
    sizes: str = "mix"
    memory_bytes: int = 1 << 30
    """Of a node."""
    replicas: int = 1

    @property
    def keys(self) -> int:
        """As many as fill it, on the mean."""
        return max(100, round(self.total_bytes / mean_bytes(size_of(self.sizes))))


@dataclass(frozen=True)
class Killed:
    """A primary that was."""

    at: float
    """`time.monotonic`, as all here."""
    replicated_until: float
    """What it acknowledged before then was at its replica."""
    numbers: frozenset[int]
    """Of the blocks that it served."""

    def unreplicated(self, lost: Lost) -> bool:
        """Whether it acknowledged that write, and its replica may not have had it. A writer notes an acknowledgement
        when the whole batch is back, which may wait for the dead node's answer for as long as its patience lasts."""
        return lost.number in self.numbers and self.replicated_until <= lost.at <= self.at + PATIENCE_SECONDS


@dataclass
class Trial:
    """What came of it."""

    name: str
    server: str = ""
    marks: dict[str, float] = field(default_factory=dict)
    """Seconds since the load began, by what happened then."""
    crowd: Crowd | None = None
    outcome: Outcome | None = None
    sights: list[tuple[float, Sight]] = field(default_factory=list)
    """Seconds since the load began, and what was seen then."""
    moved_bytes: dict[str, int] = field(default_factory=dict)
    """By phase: blocks whose slot changed its shard."""
    killed: Killed | None = None

    @property
    def result(self) -> Outcome:
        """When it is over."""
        assert self.outcome is not None, "it is not over"
        return self.outcome

    def phase(self, begin: str, end: str) -> Counts:
        """What callers saw between two marks."""
        assert self.crowd is not None
        return self.crowd.between(self.marks[begin], max(self.marks[end], self.marks[begin] + BIN_SECONDS))

    @property
    def lost_before(self) -> int:
        """Acknowledged writes that are gone, and must not be."""
        return len(self.result.lost) - self.lost_within

    @property
    def lost_within(self) -> int:
        """Those that were acknowledged but not yet at the replica of the primary that was killed."""
        return 0 if self.killed is None else sum(map(self.killed.unreplicated, self.result.lost))

    @property
    def wrong(self) -> int:
        """Answers that nobody ever stored for that key, meanwhile and at the end."""
        checked = self.result.checked
        return self.result.counts.wrong + (checked.wrong if checked else 0)

    def lines(self) -> Iterator[tuple[float, int, int, Counts]]:
        """By second: shards, served slots, counts."""
        assert self.crowd is not None
        seconds = int(self.crowd.timeline.seconds)
        for second in range(seconds):
            near = [sight for at, sight in self.sights if at <= second + 1]
            last = near[-1] if near else None
            counts = self.crowd.between(second, second + 1)
            yield float(second), last.shards if last else 0, last.served if last else 0, counts


class Run:
    """A trial under way."""

    def __init__(self, trial: Trial, crowd: Crowd, watch: Watch, job: Job) -> None:
        self.trial, self.crowd, self.watch, self._job = trial, crowd, watch, job
        blocks, names = Blocks(job.sizes, job.seed, job.run), Names(job.prefix)
        numbers = range(job.keys)
        self._slots = [slot_of(names.head(blocks.key(number))) for number in numbers]
        self._bytes = [blocks.size(number) for number in numbers]

    def mark(self, what: str, at: float | None = None) -> None:
        """It happens now."""
        assert self.crowd.began is not None
        self.trial.marks[what] = (time.monotonic() if at is None else at) - self.crowd.began

    def calm(self, seconds: float) -> None:
        """Let it run. Raises `AssetError` when a process of the load ends."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.crowd.running(min(left, 1.0))

    def moved(self, what: str, before: dict[int, int], after: dict[int, int]) -> None:
        """Count what changed its shard between two maps of slots."""
        self.trial.moved_bytes[what] = sum(
            size for slot, size in zip(self._slots, self._bytes, strict=True) if before.get(slot) != after.get(slot)
        )

    def served_by(self, slots: frozenset[int]) -> frozenset[int]:
        """The numbers of all blocks in these slots."""
        return frozenset(number for number, slot in enumerate(self._slots) if slot in slots)

    def finish(self) -> None:
        """End the load, and look for all that was acknowledged."""
        self.mark("end")
        self.crowd.stop(check=True)
        began = self.crowd.began or 0.0
        self.trial.outcome = self.crowd.outcome()
        self.trial.sights = [(sight.at - began, sight) for sight in self.watch.sights if sight.at >= began]


@contextmanager
def loaded(trial: Trial, job: Job, watch: Watch, progress: Progress) -> Iterator[Run]:
    """Under load, all blocks written. Raises `AssetError`."""
    with watch, Crowd(job) as crowd:
        trial.crowd = crowd
        end = time.monotonic() + _LONGEST_FILL
        while crowd.filling(0.5):
            progress(f"{trial.name}: write", crowd.filled, job.keys)
            if time.monotonic() > end:
                raise AssetError(f"the blocks are not written after {_LONGEST_FILL:g} s: {crowd.told}")
        progress(f"{trial.name}: write", job.keys, job.keys)
        run = Run(trial, crowd, watch, job)
        began = crowd.go()
        run.mark("begin", began)
        yield run


def job_for(handle: Handle, extent: Extent, seed: int, **changes: object) -> Job:
    """The load of a trial on a local cluster."""
    return job_at(handle.url, handle.password, extent, seed, **changes)


def job_at(url: str, password: str | None, extent: Extent, seed: int, **changes: object) -> Job:
    """The load of a trial."""
    given: dict[str, object] = {
        "qps": extent.qps, "seconds": _FOR_EVER, "keys": extent.keys, "sizes": dict(size_of(extent.sizes)),
        "password": password, "seed": seed, "reads": 0.8, "refill": False, "processes": 1, "lanes": 4,
        "timeout_seconds": PATIENCE_SECONDS,
    }  # fmt: skip
    return Job(url, **(given | changes))  # type: ignore[arg-type]
