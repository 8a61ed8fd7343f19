"""The folder that processes of one machine share: the disk tier, its write-behind, and news of invalidations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mmcache.model.clock import Clock
from mmcache.model.event import Event
from mmcache.model.key import Key
from mmcache.settings import DiskSettings, Tenant
from mmcache.tiers.broadcast import Broadcast
from mmcache.tiers.disk import DiskTier
from mmcache.tiers.write_behind import WriteBehind


class Folder:
    """Opens all three, wired to each other. A module of its own: who has no disk tier does not load LMDB."""

    def __init__(
        self,
        root: Path,
        limits: DiskSettings,
        *,
        clock: Clock,
        emit: Callable[[Event], None],
        catch_up: Callable[[], int],
        tenants: Mapping[str, Tenant],
    ) -> None:
        self.disk = DiskTier(root, limits, clock=clock, emit=emit, outdated=self._outdated, tenants=tenants)
        self.broadcast = Broadcast(root / "invalidations")
        self.behind = WriteBehind(
            self.disk, backlog_bytes=limits.backlog_bytes, emit=emit, clock=clock, catch_up=catch_up,
            sequence=lambda: self.broadcast.sequence[0],
        )  # fmt: skip

    def _outdated(self) -> list[Key] | None:
        """What was invalidated since the batch that is being written was taken."""
        return self.broadcast.since(self.behind.caught_up)
