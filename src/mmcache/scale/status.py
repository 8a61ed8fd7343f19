"""What is told of a cluster: plain data, as JSON on one machine, as `status` of a resource on Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mmcache.scale.steps import Step


class Phase(StrEnum):
    """What is going on."""

    CREATING = "Creating"
    STEADY = "Steady"
    SCALING_OUT = "ScalingOut"
    SCALING_IN = "ScalingIn"
    REPAIRING = "Repairing"
    """A node or a slot is missing, and is being replaced."""
    UPGRADING = "Upgrading"
    BLOCKED = "Blocked"
    """What is wanted cannot be done; the reason says why, and what to change."""
    DRAINING = "Draining"
    """The cluster is being deleted."""
    UNKNOWN = "Unknown"
    """Nobody could be asked."""


@dataclass(frozen=True)
class Progress:
    """Of a scaling, all of it: from where it began until every shard has as many slots as the others.

    Of an upgrade without replicas: of the primary that is being vacated.
    """

    moved: int
    total: int
    """Slots."""

    @property
    def told(self) -> str:
        """Such as `3072/7372`."""
        return f"{self.moved}/{self.total}"


@dataclass(frozen=True)
class Plan:
    """What `plan` decided: at most one step."""

    phase: Phase
    step: Step | None
    """None: nothing to do, or to be waited for."""
    reason: str
    """One word in CamelCase, as Kubernetes has it."""
    message: str
    """A sentence for people."""
    progress: Progress | None = None
    """Where it follows from this look alone; of a scaling see `mmcache.scale.way`."""
    left: int | None = None
    """Slots that have to move until it is as wanted; None while some are served by nobody."""


@dataclass(frozen=True)
class Condition:
    """As Kubernetes has it: `Available`, `Progressing`, `Degraded`, `Burst`."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Happened:
    """An event worth telling: a step, a burst, a refusal."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True)
class Status:
    """After one turn of the controller."""

    phase: Phase
    shards: int
    """Primaries that serve slots."""
    wanted: int
    nodes: int
    ready_nodes: int
    qps: float
    """Requests a second over the burst's window, as `NodeSeen.requests` counts them."""
    baseline_qps: float | None
    """None: too little was seen."""
    hit_ratio: float | None
    """Of lookups at the nodes over the window, also those of puts (see `NodeSeen.requests`); None without any."""
    keys: int
    used_bytes: int
    max_bytes: int
    """Of all primaries."""
    reason: str
    message: str
    conditions: tuple[Condition, ...] = ()
    progress: Progress | None = None
    happened: tuple[Happened, ...] = ()
    """In this turn."""
