"""Who runs the nodes: processes of this machine, or pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mmcache.scale.observed import Member


class Platform(Protocol):
    """Starts and ends members; knows nothing of slots. Every method may be cut off anywhere and be called again.

    A member that died is started again by the platform itself, empty and under a new id, and not before the other nodes
    have had time to replace it. Two members of one shard are never on one machine where there is more than one.
    Raises `ScaleError`.
    """

    def members(self) -> Sequence[Member]:
        """All that exist or are being made or ended."""

    def start_shard(self, shard: int, members: int) -> None:
        """See `StartShard`. Does not wait until they are ready."""

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        """See `StopShard`. Does not wait until they are gone."""

    def replace(self, member: Member) -> None:
        """See `Replace`. Does not wait until it is ready."""
