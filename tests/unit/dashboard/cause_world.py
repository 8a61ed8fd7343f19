"""Traffic of three processes, drawn by chance with a seed, as rows that causes are found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mmcache.dashboard.rows import CauseRows, ExampleRow, Group, KeyRow, SignatureRow, StepRow, Window

INSTANCES = ("encoder-1", "encoder-2", "encoder-3")
QUARTER_PAST_TWO = 1_790_216_100.0
"""2026-09-24 02:15:00 UTC."""
STEP = 60.0


class Source(NamedTuple):
    """One tenant's lookups by one route, spread over the processes alike."""

    tenant: str
    route: str
    rate: float
    """Lookups a second and process, on average; Poisson."""
    ratio: float
    """Hit ratio."""


INTERACTIVE = (Source("shop", "/v1/embeddings", 3.0, 0.92), Source("search", "/v1/rerank", 2.0, 0.85))
BATCH = Source("batch", "/v1/embeddings", 0.4, 0.55)

Change = Callable[[float, str, Source], tuple[float, float, str, str]]
"""(time, instance, source) → rate, hit ratio, reason of the misses that it adds, signature."""


@dataclass
class World:
    """Lookups of `minutes` before 02:15 and of `minutes` after it."""

    seed: int = 0
    minutes: int = 30
    sources: tuple[Source, ...] = (*INTERACTIVE, BATCH)
    change: Change | None = None
    weight: float = 1.0
    """Every so manyth lookup is recorded."""
    fields: dict[str, dict[str, str]] = field(
        default_factory=lambda: {
            "a" * 16: {"model_version": "clip-1.4.0", "dtype": "float16", "modality": "image"},
            "b" * 16: {"model_version": "clip-1.5.0", "dtype": "float16", "modality": "image"},
        }
    )

    def rows(self) -> CauseRows:
        """As the store would count them."""
        middle, length = QUARTER_PAST_TWO, 60.0 * self.minutes
        counts: dict[tuple[str, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, np.inf])
        seen: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 4 + [np.inf, 0.0])
        steps: dict[tuple[float, str, str, str], float] = defaultdict(float)
        refused: dict[tuple[str, str], float] = defaultdict(float)
        examples: list[ExampleRow] = []
        for t, instance, source, reason, signature, number in self._draw(middle - length, middle + length):
            now = t >= middle
            one = counts[instance, source.tenant, source.route, reason]
            one[now] += number
            one[2] = min(one[2], t) if now else one[2]
            used = seen[instance, signature]
            used[2 * now + bool(reason)] += number
            used[4], used[5] = min(used[4], t), t
            refused[instance, signature] += number if now and reason == "signature" else 0.0
            steps[t, source.tenant, instance, reason] += number
            if now and reason and len(examples) < 400:
                span = f"{len(examples):016x}"
                examples.append(
                    ExampleRow(span * 2, span, t, "encoders", instance, source.tenant, source.route, "image", "eu",
                               reason, "", signature)
                )  # fmt: skip
        groups = [
            Group("image", route, tenant, "eu", "exact", "encoders", instance, "miss" if reason else "hit", reason,
                  not reason, before, after, 0.0 if first == np.inf else first)
            for (instance, tenant, route, reason), (before, after, first) in counts.items()
        ]  # fmt: skip
        signatures = [
            SignatureRow("encoders", instance, "image", signature, self.fields.get(signature, {}), old_hits, old_misses,
                         hits, misses, first, last, refused[instance, signature])
            for (instance, signature), (old_hits, old_misses, hits, misses, first, last) in seen.items()
        ]  # fmt: skip
        keys = [KeyRow("batch", "/v1/embeddings", "image", 100.0, 50, 5000.0, 4900)]
        return CauseRows(
            Window(middle - length, middle), Window(middle, middle + length), groups,
            [StepRow(t, STEP, tenant, instance, reason, number) for (t, tenant, instance, reason), number in
             sorted(steps.items())],
            signatures, keys, examples, self.weight,
        )  # fmt: skip

    def _draw(self, start: float, end: float) -> Iterator[tuple[float, str, Source, str, str, float]]:
        rng = np.random.default_rng(self.seed)
        for t in np.arange(start, end, STEP).tolist():
            for instance in INSTANCES:
                for source in self.sources:
                    rate, ratio, reason, signature = source.rate, source.ratio, "absent", "a" * 16
                    if self.change is not None:
                        rate, ratio, reason, signature = self.change(t, instance, source)
                    hits = float(rng.poisson(rate * ratio * STEP / self.weight))
                    usual = min(1 - ratio, 1 - source.ratio)
                    misses = float(rng.poisson(rate * usual * STEP / self.weight))
                    added = float(rng.poisson(rate * (1 - ratio - usual) * STEP / self.weight))
                    for why, number in (("", hits), ("absent", misses), (reason, added)):
                        if number:
                            yield t, instance, source, why, signature, number * self.weight


def incident(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
    """The model changes in `encoder-2` at 02:15, and at 02:20 a batch floods with what nobody asked for before."""
    swapped = t >= QUARTER_PAST_TWO and instance == "encoder-2"
    signature = ("b" if swapped else "a") * 16
    if source.tenant == "batch" and t >= QUARTER_PAST_TWO + 300:
        return 12 * source.rate, 0.04, "absent", signature
    if swapped and source.tenant != "batch":
        return source.rate, source.ratio * 0.4, "signature", signature
    return source.rate, source.ratio, "absent", signature


def batch_only(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
    """Only the flood."""
    rate, ratio, reason, _ = incident(t, "encoder-1", source)
    return rate, ratio, reason, "a" * 16


def swap_only(t: float, instance: str, source: Source) -> tuple[float, float, str, str]:
    """Only the other signature."""
    rate, ratio, reason, signature = incident(min(t, QUARTER_PAST_TWO), instance, source)
    return rate, ratio, reason, signature
