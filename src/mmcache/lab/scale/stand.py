"""A cluster of this machine as `mmcache cluster` has it, in a folder that goes afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmcache.lab.scale.watch import Watch
from mmcache.lab.servers.process import free_row
from mmcache.model.errors import ScaleError
from mmcache.scale.local.handle import Handle
from mmcache.scale.status import Phase

FIRST = 3
"""Shards, at first."""
_PORTS = 30
"""For all members that there ever are."""
_LONGEST = 240.0
_POLL = 0.05


@contextmanager
def standing(folder: Path, change: dict[str, Any]) -> Iterator[Handle]:
    """Up, with `FIRST` shards unless `change` says otherwise; down at the end. Raises `ScaleError`."""
    handle = Handle(folder)
    wanted = handle.up({"min_shards": FIRST, "max_shards": FIRST, **change}, free_row(_PORTS))
    try:
        steady(handle, wanted.generation)
        yield handle
    finally:
        handle.down()


def steady(handle: Handle, generation: int) -> float:
    """Wait until what is wanted is there; when that was, `time.monotonic`. Raises `ScaleError`."""
    end, last = time.monotonic() + _LONGEST, ""
    while time.monotonic() < end:
        told = handle.files.told()
        if told is not None and told.status is not None and told.generation >= generation:
            status, last = told.status, f"{told.status.phase}: {told.status.message} {told.trouble}"
            if status.phase is Phase.BLOCKED:
                raise ScaleError(f"it cannot be done: {status.message}")
            if status.phase is Phase.STEADY and status.shards == status.wanted:
                return time.monotonic()
        time.sleep(_POLL)
    raise ScaleError(f"not steady after {_LONGEST:g} s: {last}")


def resize(handle: Handle, shards: int) -> int:
    """So many are wanted; the generation of that."""
    return handle.change({"min_shards": shards, "max_shards": shards}).generation


def watching(handle: Handle) -> Watch:
    """See `Watch`."""

    def ports() -> list[int]:
        files = [handle.files.member(name) for name in handle.files.member_names()]
        return [file.port for file in files if file is not None]

    def first(port: int) -> bool:
        files = [handle.files.member(name) for name in handle.files.member_names()]
        return any(file is not None and file.port == port and file.shard < FIRST for file in files)

    return Watch(ports, handle.password, first)


def shard_of_slots(handle: Handle, watch: Watch) -> dict[int, int]:
    """Which shard serves each slot. Raises `ScaleError`."""
    sight = watch.look()
    if sight is None:
        raise ScaleError("no node answers")
    found: dict[int, int] = {}
    seen = handle.look()
    shards = {node.id: int(name.partition("-")[0]) for name, node in seen.nodes.items()}
    for id, slots in sight.owners.items():
        found.update(dict.fromkeys(slots, shards.get(id, -1)))
    return found


def kill_supervisor(handle: Handle) -> None:
    """SIGKILL, and see it gone. Raises `ScaleError`."""
    pid = handle.supervisor
    if pid is None:
        raise ScaleError("nobody watches over the cluster")
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + _LONGEST
    while handle.supervisor == pid:
        if time.monotonic() > end:
            raise ScaleError(f"process {pid} does not end")
        time.sleep(_POLL)
