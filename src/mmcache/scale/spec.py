"""What a user wants of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from mmcache.model.errors import SettingsError

FEWEST_SHARDS = 3
"""Fewer primaries have no majority left when one of them dies, so that nobody takes over."""
MOST_SHARDS = 500
MOST_REPLICAS = 5
LEAST_MEMORY = 16 << 20
MOST_MEMORY = 16 << 40
"""More has no machine that one would give to one node."""


@dataclass(frozen=True)
class BurstSpec:
    """When load counts as a burst, and when it is over (system F1)."""

    window_seconds: float = 60.0
    """The rate is the mean over so long."""
    factor: float = 1.5
    """A burst: the rate is above so many times the baseline."""
    end_factor: float = 1.2
    """It is over when the rate has stayed below so many times the baseline (more, where noise is wide)…"""
    quiet_seconds: float = 300.0
    """…for so long; no shard goes sooner after the last change either (cool-down)."""
    fewest_samples: int = 10
    """Of the rate, before anything is concluded from it."""
    most_shards_a_step: int = 2
    """One decision adds at most so many; it takes away one."""


@dataclass(frozen=True)
class ClusterSpec:
    """Raises `SettingsError` where it contradicts itself."""

    min_shards: int = FEWEST_SHARDS
    max_shards: int = FEWEST_SHARDS
    replicas: int = 1
    """Of each primary."""
    qps_threshold: float = 20.0
    """Thousands of requests a second that one shard is to carry; a put counts as two or more (`NodeSeen.requests`)."""
    memory_bytes: int = 256 << 20
    """That one node may use (`maxmemory`)."""
    version: str = ""
    """What the nodes run: an image on Kubernetes, a server of this machine locally; "" = what the platform has."""
    allow_eviction: bool = False
    """Scale in even where the blocks would not fit into fewer nodes: the least wanted are evicted."""
    burst: BurstSpec = field(default_factory=BurstSpec)

    def __post_init__(self) -> None:
        for wrong in self.faults():
            raise SettingsError(wrong)

    def faults(self) -> list[str]:
        """What is wrong with it, one sentence each, in the names of the fields."""
        burst = self.burst
        few = ": fewer have no majority that could replace a dead one" if self.min_shards < FEWEST_SHARDS else ""
        shards, most = self.min_shards, f"minShards..{MOST_SHARDS} ({self.min_shards}..{MOST_SHARDS})"
        checks = (
            (FEWEST_SHARDS <= shards <= MOST_SHARDS,
             f"minShards must be {FEWEST_SHARDS}..{MOST_SHARDS}, not {shards}{few}"),
            (shards <= self.max_shards <= MOST_SHARDS, f"maxShards must be {most}, not {self.max_shards}"),
            (0 <= self.replicas <= MOST_REPLICAS, f"replicas must be 0..{MOST_REPLICAS}, not {self.replicas}"),
            (0 < self.qps_threshold <= 10_000, "qpsThreshold is in thousands a second, above 0 and at most 10000, "
             f"not {self.qps_threshold}"),
            (LEAST_MEMORY <= self.memory_bytes <= MOST_MEMORY,
             f"memory must be 16 MiB to 16 TiB a node, not {_size(self.memory_bytes)}"),
            (1 <= burst.window_seconds <= 3600, f"burst.windowSeconds must be 1..3600, not {burst.window_seconds}"),
            (1 < burst.factor <= 100, f"burst.factor must be above 1 and at most 100, not {burst.factor}"),
            (1 <= burst.end_factor < burst.factor, f"burst.endFactor must be from 1 to below burst.factor "
             f"({burst.factor}), not {burst.end_factor}: without the distance shards come and go"),
            (0 <= burst.quiet_seconds <= 86_400, f"burst.quietSeconds must be 0..86400, not {burst.quiet_seconds}"),
            (1 <= burst.fewest_samples <= 3600, f"burst.fewestSamples must be 1..3600, not {burst.fewest_samples}"),
            (1 <= burst.most_shards_a_step <= 50,
             f"burst.mostShardsAStep must be 1..50, not {burst.most_shards_a_step}"),
        )  # fmt: skip
        return [message for right, message in checks if not right]


def _size(count: int) -> str:
    """Bytes, however many."""
    return f"{count} bytes" if count < 1 << 60 else "over 1024 PiB"
