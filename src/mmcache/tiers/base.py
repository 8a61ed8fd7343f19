"""`Tier`: somewhere frames rest. Batches in, batches out; a tier never raises for a single bad block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key

Deadline = float | None
"""Monotonic seconds (`Clock.monotonic`) after which a block must not be served; None = never."""


@dataclass(frozen=True, slots=True)
class Found:
    """A frame as the tier holds it."""

    frame: Frame
    deadline: Deadline
    verified: bool = False
    """Whether the tier has checked the payload; else the reader does."""


@dataclass(frozen=True, slots=True)
class Held:
    """One line of `Tier.scan()`."""

    key: Key
    size: int
    """Bytes at rest."""
    deadline: Deadline
    created: float
    """Unix seconds."""
    tenant: str
    namespace: str
    model: str
    modality: str


@dataclass(frozen=True, slots=True)
class TierStats:
    """Gauges of one tier."""

    blocks: int
    bytes: int
    limit_bytes: int | None
    detail: dict[str, int | float | str]


@runtime_checkable
class Tier(Protocol):
    """Seven methods; all may be called from any thread."""

    name: str

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """For each key, in order, what is held or why not."""

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """Store each frame, replacing an older one of its key. None = accepted."""

    def drop(self, keys: Iterable[Key]) -> int:
        """Forget these keys now; how many were held."""

    def scan(self) -> Iterator[Held]:
        """All that is held, in no order; tolerates concurrent change."""

    def flush(self) -> None:
        """Return when all accepted puts are as durable as this tier makes them."""

    def stats(self) -> TierStats:
        """Gauges now."""

    def close(self) -> None:
        """Flush and release. Idempotent; later calls raise `TierClosedError`."""


class Claims(Protocol):
    """Cross-process single flight: at most one process of the machine holds a key's claim."""

    def acquire(self, key: Key) -> bool:
        """Try to become the leader; never blocks. A dead process's claim is free at once."""

    def acquire_all(self, keys: Sequence[Key]) -> list[bool]:
        """`acquire` of each of `keys`, which differ; at once, where that is quicker."""

    def release(self, key: Key) -> None:
        """Give the claim back."""
