"""The fields of a resource's `spec` that say how the cluster grows: once, for schema, parser and messages."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from mmcache.scale.spec import FEWEST_SHARDS, MOST_REPLICAS, MOST_SHARDS, BurstSpec, ClusterSpec


@dataclass(frozen=True)
class SpecField:
    """One field: its path in `spec`, and the attribute of `ClusterSpec` or `BurstSpec` that it becomes."""

    path: str
    attribute: str
    type: str
    """`integer`, `number` or `boolean`, as JSON schema has it."""
    tells: str
    low: float | None = None
    high: float | None = None
    above_low: bool = False
    """`low` itself is too low."""

    @property
    def burst(self) -> bool:
        """Of `BurstSpec`."""
        return self.path.startswith("burst.")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def default(self) -> Any:
        """As the dataclass has it."""
        return _defaults(BurstSpec if self.burst else ClusterSpec)[self.attribute]

    def schema(self) -> dict[str, Any]:
        """OpenAPI v3 as Kubernetes takes it."""
        found: dict[str, Any] = {"type": self.type, "description": self.tells, "default": self.default}
        if self.low is not None:
            found["minimum"] = self.low
        if self.above_low:
            found["exclusiveMinimum"] = True
        if self.high is not None:
            found["maximum"] = self.high
        return found


def _defaults(of: type) -> dict[str, Any]:
    told: tuple[Field[Any], ...] = fields(of)
    return {field.name: field.default for field in told if field.default is not MISSING}


CLUSTER = (
    SpecField("minShards", "min_shards", "integer", "Primaries that there are at least; three is the fewest that can "
              "replace a dead one.", FEWEST_SHARDS, MOST_SHARDS),
    SpecField("maxShards", "max_shards", "integer", "Primaries that there are at most, however many requests come.",
              FEWEST_SHARDS, MOST_SHARDS),
    SpecField("replicas", "replicas", "integer", "Of each primary, never on the same Kubernetes node.",
              0, MOST_REPLICAS),
    SpecField("qpsThreshold", "qps_threshold", "number", "Thousands of requests a second that one shard is to carry.",
              0, 10_000, above_low=True),
)  # fmt: skip
BURST = (
    SpecField("burst.windowSeconds", "window_seconds", "number", "The rate is the mean over so long.", 1, 3600),
    SpecField("burst.factor", "factor", "number", "A burst: the rate is above so many times the baseline.",
              1, 100, above_low=True),
    SpecField("burst.endFactor", "end_factor", "number", "It is over when the rate stays below so many times the "
              "baseline; less than factor.", 1, 100),
    SpecField("burst.quietSeconds", "quiet_seconds", "number", "It is over after so long below endFactor; nor does "
              "a shard go sooner after the last change.", 0, 86_400),
    SpecField("burst.fewestSamples", "fewest_samples", "integer", "Of the rate, before anything is concluded.",
              1, 3600),
    SpecField("burst.mostShardsAStep", "most_shards_a_step", "integer", "One decision adds at most so many.", 1, 50),
)  # fmt: skip
