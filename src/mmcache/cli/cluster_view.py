"""What `mmcache cluster` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from mmcache.cli.output import facts, grid, size
from mmcache.model.errors import ScaleError
from mmcache.scale.observed import SLOTS, NodeSeen, Observed
from mmcache.scale.status import Phase

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.scale.local import Handle
    from mmcache.scale.local.files import Event, Told, Wanted

SHOWN_EVENTS = 8
OLD_SECONDS = 3.0
DISK_FULL = "the disk of its folder is full: make room, and it goes on by itself"


@dataclass(frozen=True)
class Glance:
    """All that is told of a cluster at one moment."""

    folder: str
    url: str | None
    supervisor: int | None
    wanted: Wanted
    told: Told | None
    seen: Observed
    pids: Mapping[str, int]
    events: list[Event] = field(default_factory=list)
    now: float = field(default_factory=time)
    """Unix seconds."""
    full: bool = False
    """Its disk is."""

    @property
    def ago(self) -> str:
        """How old what was told is, where it matters: a look takes seconds while nodes do not answer."""
        seconds = 0.0 if self.told is None else self.now - self.told.at
        return f", {seconds:.0f} s ago" if seconds >= OLD_SECONDS else ""

    @property
    def served(self) -> int:
        """Slots that a node serves."""
        return len(frozenset().union(*(node.slots for node in self.seen.nodes.values() if not node.primary)))

    @property
    def well(self) -> bool:
        """All slots are served, somebody watches, and what is wanted is not refused."""
        blocked = self.told is not None and self.told.status is not None and self.told.status.phase is Phase.BLOCKED
        return self.supervisor is not None and self.served == SLOTS and not blocked


def glance(handle: Handle) -> Glance:
    """Look now. Raises `ScaleError`."""
    wanted = handle.require()
    try:
        address = handle.url
    except ScaleError:  # it has no members yet
        address = None
    seen = handle.look()  # first: it may take long, and what is told is to be of now
    return Glance(
        str(handle.files.folder), address, handle.supervisor, wanted, handle.files.told(), seen, handle.pids(),
        handle.files.last_events(SHOWN_EVENTS), full=handle.disk_full,
    )  # fmt: skip


def as_data(found: Glance) -> dict[str, Any]:
    """For programs."""
    told = found.told
    data = {
        "folder": found.folder, "url": found.url, "supervisor": found.supervisor, "well": found.well,
        "spec": found.wanted.spec, "generation": found.wanted.generation,
        "observed_generation": told.generation if told else 0, "at": told.at if told else None,
        "status": told.status if told else None, "trouble": told.trouble if told else "", "disk_full": found.full,
        "slots_served": found.served, "members": [_member(found, number) for number in range(len(found.seen.members))],
        "events": found.events,
    }  # fmt: skip
    plain: dict[str, Any] = msgspec.to_builtins(data)
    return plain


def _member(found: Glance, number: int) -> dict[str, Any]:
    member = found.seen.members[number]
    node = found.seen.nodes.get(member.name)
    told = {} if node is None else {
        "id": node.id, "in_sync": node.in_sync, "slots": len(node.slots), "keys": node.keys,
        "used_bytes": node.used_bytes, "max_bytes": node.max_bytes, "requests": node.requests, "hits": node.hits,
        "misses": node.misses, "evicted": node.evicted, "server": node.version,
    }  # fmt: skip
    return {
        "name": member.name, "role": _role(node), "host": member.host, "port": member.port,
        "pid": found.pids.get(member.name), "ready": member.ready, "leaving": member.leaving,
        "current": member.current,
    } | told  # fmt: skip


def _role(node: NodeSeen | None) -> str:
    return "down" if node is None else "replica" if node.primary else "primary" if node.slots else "empty"


def view(found: Glance) -> RenderableType:
    """For people."""
    from rich.console import Group

    parts = [facts(f"cluster {found.folder}: {_phase(found)}", _lines(found)), _nodes(found)]
    if found.events:
        rows = [(_when(event.at), event.reason, event.message) for event in reversed(found.events)]
        parts.append(grid("last events", ("at (UTC)", "what", "why"), rows))
    return Group(*parts)


def _phase(found: Glance) -> str:
    if found.supervisor is None:
        return "nobody watches over it (mmcache cluster up)"
    return f"{found.told.status.phase}{found.ago}" if found.told and found.told.status else "not looked at yet"


def _lines(found: Glance) -> dict[str, object]:
    spec, told = found.wanted.spec, found.told
    status = told.status if told and found.supervisor is not None else None
    grows = f"{spec.min_shards} to {spec.max_shards}" if spec.max_shards > spec.min_shards else str(spec.min_shards)
    shards = len({member.shard for member in found.seen.members})
    lines: dict[str, object] = {
        "address": found.url or "none yet",
        "shards": f"{shards}, wanted {grows}, with {_count(spec.replicas, 'replica')} each",
    }
    if found.served < SLOTS:
        lines["slots"] = f"{SLOTS - found.served} of {SLOTS} are served by nobody: their keys miss"
    if status is not None:
        lines["now"] = f"{status.message} ({status.reason}{found.ago})"
        if status.progress is not None:
            moved, total = status.progress.moved, status.progress.total
            lines["progress"] = f"{moved:,} of {total:,} slots have moved ({moved / max(total, 1):.0%})"
        usual = "not known yet" if status.baseline_qps is None else f"{status.baseline_qps:,.0f}"
        lines["requests a second"] = f"{status.qps:,.0f}, usual {usual}, {1000 * spec.qps_threshold:,.0f} a shard"
        lines["hit ratio of its nodes"] = "no reads" if status.hit_ratio is None else f"{status.hit_ratio:.1%}"
        lines["blocks"] = f"{status.keys:,} keys, {size(status.used_bytes)} of {size(status.max_bytes)}"
    troubles = [told.failing] if told is not None and told.failing and found.supervisor is not None else []
    if found.full:
        troubles.append(DISK_FULL)
    if troubles:
        lines["trouble"] = "; ".join(troubles)
    lines["supervisor"] = "none" if found.supervisor is None else f"process {found.supervisor}"
    return lines


def _nodes(found: Glance) -> RenderableType:
    rows: list[tuple[object, ...]] = []
    for member in found.seen.members:
        node = found.seen.nodes.get(member.name)
        marks = [word for word, true in (("leaving", member.leaving), ("old version", not member.current)) if true]
        if node is None:
            rows.append((member.name, "down", member.port or "", "", "", "", "", ", ".join(marks)))
            continue
        marks += [] if node.in_sync else ["being filled"]
        slots = f"{len(node.slots)}" if node.slots else ""
        used = f"{size(node.used_bytes)} of {size(node.max_bytes)}"
        marks += [f"{node.evicted} evicted"] if node.evicted else []
        rows.append((member.name, _role(node), member.port, slots, node.keys, used, node.version, ", ".join(marks)))
    columns = ("node", "role", "port", "slots", "keys", "memory", "server", "")
    return grid("nodes", columns, rows)


def brought_up(handle: Handle, wanted: Wanted, told: Told | None) -> RenderableType:
    """After `up`."""
    spec = wanted.spec
    nodes = spec.min_shards * (1 + spec.replicas)
    lines: dict[str, object] = {
        "shards": f"{spec.min_shards}, with {_count(spec.replicas, 'replica')} each: {nodes} processes",
        "memory": f"{size(spec.memory_bytes)} a node",
        "folder": handle.files.folder,
        "supervisor": f"process {handle.supervisor}",
    }
    if spec.max_shards > spec.min_shards:
        lines["grows"] = f"to {spec.max_shards} shards, by {1000 * spec.qps_threshold:,.0f} requests a second each"
    if told is not None and told.status is not None:
        lines["now"] = told.status.message
    else:
        lines["now"] = "it is being brought up"
    return facts("mmcache cluster", lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
