"""What the demo shows: by phase, who answered and how fast; and whether anybody got an error or a wrong answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcache.lab.demo_cluster.worker import Log, Request, digest
from mmcache.lab.models import ImageEncoder
from mmcache.lab.table import percentile

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Phase:
    """One of the three."""

    name: str
    outcomes: dict[str, int]
    """Where answers came from → how many."""
    errors: int
    p50_ms: float
    p99_ms: float
    worst_ms: float


@dataclass(frozen=True)
class Outcome:
    """All of it."""

    phases: tuple[Phase, ...]
    pictures: int
    """That were asked for."""
    computed: int
    """How often the model ran, on both hosts."""
    wrong: int
    """Answers that are not bit for bit what the model computes without a cache."""
    failures: dict[str, int]
    """What the caches said meanwhile."""

    @property
    def ok(self) -> bool:
        """No caller noticed anything."""
        return not self.wrong and not any(phase.errors for phase in self.phases)

    @staticmethod
    def of(pictures: Sequence[str], names: Sequence[str], marks: Sequence[float], logs: Sequence[Log]) -> Outcome:
        """From the logs of all processes; `marks`: when each phase ended. Computes every picture once more."""
        requests = [request for log in logs for request in log.requests]
        truth = _truth(pictures, {request.picture for request in requests})
        phases = []
        for name, (begin, end) in zip(names, pairwise([float("-inf"), *marks[:-1], float("inf")]), strict=True):
            phases.append(_phase(name, [request for request in requests if begin <= request.at < end]))
        return Outcome(
            tuple(phases),
            len(truth),
            sum(request.outcome == "computed" for request in requests),
            sum(bool(request.output) and request.output != truth[request.picture] for request in requests),
            dict(sum((Counter(log.failures) for log in logs), Counter())),
        )

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        import msgspec

        found: dict[str, Any] = msgspec.to_builtins(self)
        return found | {"ok": self.ok}


def _phase(name: str, requests: Sequence[Request]) -> Phase:
    seconds = [request.seconds for request in requests] or [0.0]
    errors = sum(request.outcome.startswith("error") for request in requests)
    outcomes = Counter(request.outcome for request in requests if not request.outcome.startswith("error"))
    p50, p99 = (1000 * percentile(seconds, share) for share in (0.5, 0.99))
    return Phase(name, dict(outcomes), errors, p50, p99, 1000 * max(seconds))


def _truth(pictures: Sequence[str], asked: set[int]) -> dict[int, bytes]:
    from PIL import Image, ImageOps

    encoder, found = ImageEncoder(), {}
    for number in sorted(asked):
        with Image.open(Path(pictures[number])) as file:
            found[number] = digest(encoder.encode(ImageOps.exif_transpose(file)))
    return found


_SOURCES = ("memory", "disk", "valkey", "waited", "computed")


def screen(outcome: Outcome) -> RenderableType:
    """For a terminal of 80 columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table(title="Two hosts, two processes each, one cluster", title_justify="left", title_style="bold")
    grid.add_column("")
    for phase in outcome.phases:
        grid.add_column(phase.name, justify="right")
    rows = {
        "requests": [f"{sum(phase.outcomes.values()) + phase.errors:,}" for phase in outcome.phases],
        **{
            {"waited": "  waited for another process", "computed": "  computed", "valkey": "  from the cluster"}.get(
                source, f"  from {source}"
            ): [f"{phase.outcomes.get(source, 0):,}" for phase in outcome.phases]
            for source in _SOURCES
        },
        "errors": [f"{phase.errors:,}" for phase in outcome.phases],
        "latency p50": [f"{phase.p50_ms:.2f} ms" for phase in outcome.phases],
        "latency p99": [f"{phase.p99_ms:.1f} ms" for phase in outcome.phases],
        "slowest": [f"{phase.worst_ms:.0f} ms" for phase in outcome.phases],
    }
    for name, cells in rows.items():
        grid.add_row(name, *cells)
    words = Text()
    words.append(f"{outcome.pictures} pictures, computed {outcome.computed} times by four processes on two hosts.\n")
    good = "bold green" if outcome.ok else "bold red"
    errors = sum(phase.errors for phase in outcome.phases)
    words.append(f"Errors that a caller saw: {errors}. Answers that were wrong: {outcome.wrong}.\n", good)
    for what, count in sorted(outcome.failures.items(), key=lambda item: -item[1])[:4]:
        words.append(f"{count} × {what}\n", "dim")
    words.append(
        "Real: pictures of easy-VQA, DINOv2 ViT-S/14, Valkey processes, SIGKILL. Simulated: both hosts are this "
        "machine, each with a folder of its own; popularity is Zipf's law.",
        "dim",
    )
    return Group(grid, words)
