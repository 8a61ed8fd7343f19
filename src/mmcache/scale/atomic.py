"""Slots go by the server's own migration (Valkey 9): the source streams them, and hands them over at one moment.

It goes on without us, so that whoever comes after a crash finds it under way, and watches it to its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from mmcache.model.errors import ScaleError
from mmcache.scale.epochs import await_rank
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.strays import clear
from mmcache.scale.talk import Word
from mmcache.scale.views import jobs, under_way

_FIRST_SECONDS, _LAST_SECONDS = 0.01, 0.2
"""Between two looks at it."""


def ranges(slots: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of slots."""
    found: list[tuple[int, int]] = []
    for slot in sorted(set(slots)):
        if found and found[-1][1] == slot - 1:
            found[-1] = found[-1][0], slot
        else:
            found.append((slot, slot))
    return found


def hand_over(slots: Sequence[int], source: str, target: str, present: Present, cancelled: Cancelled) -> None:
    """Slots that the source serves. `cancelled` undoes what is not handed over yet. Raises `ScaleError`."""
    node, to = present.contact(source), present.identity(target)
    present.contact(target)  # it is there, and is who it was
    ours = [job for job in _mine(node.ask("CLUSTER", "GETSLOTMIGRATIONS")) if under_way(job)]
    for job in ours:
        _watch(job.get("name", ""), source, target, present, cancelled)
    left = set(slots) & present.view(source).me.slots
    if not left or not await_rank(source, target, present, cancelled) or cancelled():
        return
    clear(sorted(left), target, present.identity(source), present)
    words: list[Word] = [word for run in ranges(left) for word in run]
    before = {job.get("name") for job in _mine(node.ask("CLUSTER", "GETSLOTMIGRATIONS"))}
    node.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *words, "NODE", to)
    after = [job for job in _mine(node.ask("CLUSTER", "GETSLOTMIGRATIONS")) if job.get("name") not in before]
    if not after:
        raise ScaleError(f"{node.place} does not tell of the migration that it has begun")
    _watch(after[0].get("name", ""), source, target, present, cancelled)


def _watch(name: str, source: str, target: str, present: Present, cancelled: Cancelled) -> None:
    """Until it is over. Raises `ScaleError` with the reason when it failed, or nobody can tell."""
    node = present.contact(source)
    pause, stopped = _FIRST_SECONDS, False
    while True:
        job = _found(name, node.ask("CLUSTER", "GETSLOTMIGRATIONS"))
        if job is None:
            raise ScaleError(f"{node.place} has forgotten a slot migration that it was doing")
        if not under_way(job):
            break
        if cancelled() and not stopped:
            node.ask("CLUSTER", "CANCELSLOTMIGRATIONS")
            stopped = True
            continue
        time.sleep(pause)
        pause = min(_LAST_SECONDS, pause * 1.5)
    if job.get("state") == "success" or stopped:
        return
    reasons = [job.get("message") or str(job.get("state"))]
    try:
        there = _found(name, present.contact(target).ask("CLUSTER", "GETSLOTMIGRATIONS")) or {}
    except ScaleError as silent:
        there = {"message": str(silent)}
    if there.get("message"):
        reasons.append(f"{target} says: {there['message']}")
    raise ScaleError(f"slots {job.get('slot_ranges', '')} did not go from {source} to {target}: {'; '.join(reasons)}")


def _mine(reply: Any) -> list[dict[str, str]]:
    """Those in which the node gives slots away."""
    return [job for job in jobs(reply) if job.get("operation") == "EXPORT"]


def _found(name: str, reply: Any) -> dict[str, str] | None:
    return next((job for job in jobs(reply) if job.get("name") == name), None)
