"""Three shards become five and three again, under load; and the same while something dies."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from mmcache.lab.scale.stand import (
    FIRST,
    kill_supervisor,
    resize,
    shard_of_slots,
    standing,
    steady,
    watching,
)
from mmcache.lab.scale.trial import Extent, Killed, Run, Trial, job_for, loaded
from mmcache.lab.scale.watch import Offsets, offset_of, whole
from mmcache.lab.table import Progress
from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.local.handle import Handle
from mmcache.scale.observed import SLOTS

MORE = 5
"""Shards, in between."""
_HALF = SLOTS * (MORE - FIRST) // MORE // 2
"""Slots at new shards when half of those that are to go have gone."""
_LONGEST = 180.0
_LONGEST_OFFSET = 5.0
_BREAK = 2.0
"""Seconds without a supervisor."""
Fault = Literal["", "primary", "target", "supervisor"]
"""`primary`: one that gives slots; `target`: the one that gets them."""


def reshard(
    name: str, folder: Path, version: str, extent: Extent, seed: int, progress: Progress, fault: Fault = ""
) -> Trial:
    """One trial. `fault` strikes when half of the slots have gone to the new shards.

    Raises `ScaleError`, `AssetError`.
    """
    trial = Trial(name)
    change = {"version": version, "memory_bytes": extent.memory_bytes, "replicas": extent.replicas}
    with standing(folder, change) as handle:
        trial.server = next(iter(handle.look().nodes.values())).version
        watch = watching(handle)
        with loaded(trial, job_for(handle, extent, seed), watch, progress) as run:
            run.calm(extent.calm_seconds)
            at_first = shard_of_slots(handle, watch)
            progress(f"{name}: {FIRST} to {MORE} shards", 0, 2)
            run.mark("out")
            generation = resize(handle, MORE)
            if fault:
                watch.until(lambda sight: sight.at_new >= _HALF, _LONGEST, "half of the slots moved")
                _strike(fault, handle, run)
            run.mark("out done", steady(handle, generation))
            between = shard_of_slots(handle, watch)
            run.moved("out", at_first, between)
            run.calm(extent.calm_seconds)
            progress(f"{name}: {MORE} to {FIRST} shards", 1, 2)
            run.mark("in")
            run.mark("in done", steady(handle, resize(handle, FIRST)))
            run.moved("in", between, shard_of_slots(handle, watch))
            run.calm(extent.calm_seconds)
            run.finish()
            progress(f"{name}: {MORE} to {FIRST} shards", 2, 2)
    return trial


def _strike(fault: Fault, handle: Handle, run: Run) -> None:
    if fault == "supervisor":
        run.mark("killed")
        kill_supervisor(handle)
        time.sleep(_BREAK)
        handle.up({})
        run.mark("back")
        return
    member, port, id, replica = _primary(handle, giving=fault == "primary")
    pid = handle.pids()[member]
    with ExitStack() as opened:
        offsets = opened.enter_context(Offsets(port, handle.password))
        time.sleep(0.1)
        sight = run.watch.look()
        killed = time.monotonic()
        run.mark("killed", killed)
        os.kill(pid, signal.SIGKILL)
        run.watch.dead.add(id)
        had = _offset(replica, handle.password)
    slots = sight.owners.get(id, frozenset()) if sight else frozenset()
    run.trial.killed = Killed(killed, offsets.replicated_until(had), run.served_by(slots))
    served = run.watch.until(whole, _LONGEST, "every slot served again")
    run.mark("served again", served.at)


def _primary(handle: Handle, *, giving: bool) -> tuple[str, int, str, int]:
    """Of a shard that gives slots, or gets them: member, port and id; and the port of its replica.

    Raises `ScaleError`.
    """
    seen = handle.look()
    members = {member.name: member for member in seen.members}
    for name, node in sorted(seen.nodes.items()):
        if node.primary or not node.slots or (members[name].shard < FIRST) != giving:
            continue
        replicas = [other for other, its in seen.nodes.items() if its.primary == node.id and its.in_sync]
        if replicas:
            return name, members[name].port, node.id, members[replicas[0]].port
    raise ScaleError("no primary here has a replica that is in sync")


def _offset(port: int, password: str | None) -> int:
    """Of the replica whose primary is dead. Raises `ScaleError`: what nobody can tell must not excuse a loss."""
    end = time.monotonic() + _LONGEST_OFFSET
    while True:
        try:
            return offset_of(port, password)
        except (OSError, TierError) as error:
            if time.monotonic() > end:
                raise ScaleError(f"the replica does not say how far it was: {error}") from error
