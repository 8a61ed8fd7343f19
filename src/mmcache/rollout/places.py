"""Where a cache keeps the state of its rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmcache.rollout.files import FileRecords
from mmcache.rollout.records import MemoryRecords, Records

if TYPE_CHECKING:
    from mmcache.rollout.server import Asks


def places(root: Path | None, client: Asks | None = None, prefix: str = "") -> tuple[Records, Records | None]:
    """The records, and what remembers them while they cannot be reached: on the shared tier's server and in the folder;
    else in the folder; else in this process."""
    files = None if root is None else FileRecords(root)
    if client is not None:
        from mmcache.rollout.server import ServerRecords  # the client only where there is a shared tier

        return ServerRecords(client, prefix), files
    return files or MemoryRecords(), None
