"""The metrics: the table in docs/reference/telemetry.md, for those who show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCOPE = "mmcache"
"""Of the tracer and the meter."""

BOUNDS = (0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper bounds of the histograms' buckets, seconds: from a hit in memory to a long answer of a model."""

_UNITS = {"s": "seconds", "By": "bytes"}


@dataclass(frozen=True)
class Metric:
    """One line of the table."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str

    @property
    def prometheus_unit(self) -> str:
        """`seconds`, `bytes`, or none."""
        return _UNITS.get(self.unit, "")

    @property
    def prometheus(self) -> str:
        """Its family's name in Prometheus, without `_total`."""
        name, unit = self.name.replace(".", "_"), self.prometheus_unit
        return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "mmcache.lookups", "counter", "{lookup}",
            ("outcome", "tier", "reason", "modality", "strategy", "tenant", "route", "client_region"),
            "Lookups by how they ended; those of the outcome miss have exactly one reason.",
        ),
        Metric(
            "mmcache.hit_ratio_by_client_region", "gauge", "1", ("client_region",),
            "Hits per lookup of the last minute, by where the client is.",
        ),
        Metric(
            "mmcache.miss_reason_distribution", "gauge", "1", ("reason",),
            "Share of the last minute's misses that had this reason.",
        ),
        Metric("mmcache.computes", "counter", "{input}", ("modality",), "Inputs that the model ran over."),
        Metric("mmcache.compute.time", "counter", "s", ("modality",), "Time that the model ran."),
        Metric("mmcache.saved.time", "counter", "s", ("modality", "tenant"), "Time of computing that hits saved."),
        Metric("mmcache.saved.bytes", "counter", "By", ("modality", "tenant"), "Bytes of the blocks that hits found."),
        Metric(
            "mmcache.lookup.duration", "histogram", "s", ("outcome",), "How long lookups took, of those recorded."
        ),
        Metric(
            "mmcache.compute.duration", "histogram", "s", ("outcome",), "How long computing took, where recorded."
        ),
        Metric("mmcache.tier.used", "gauge", "By", ("tier",), "Bytes that a tier holds."),
        Metric("mmcache.tier.limit", "gauge", "By", ("tier",), "Bytes that a tier may hold."),
        Metric("mmcache.tier.blocks", "gauge", "{block}", ("tier",), "Blocks that a tier holds."),
        Metric("mmcache.evictions", "counter", "{block}", ("tier", "reason"), "Blocks that left for want of room."),
        Metric("mmcache.refusals", "counter", "{block}", ("tier", "reason"), "Blocks that were not stored."),
        Metric("mmcache.expirations", "counter", "{block}", ("tier", "reason"), "Blocks whose time was over."),
        Metric("mmcache.invalidations", "counter", "{key}", (), "Keys that were invalidated."),
        Metric("mmcache.failures", "counter", "{failure}", ("where",), "What failed, and no request with it."),
        Metric("mmcache.checks", "counter", "{check}", ("result",), "Hits that were computed anew, to compare."),
        Metric(
            "mmcache.proxy.requests", "counter", "{request}", ("route", "outcome", "reason"),
            "Requests to the proxy by how they were answered.",
        ),
    )
}  # fmt: skip
