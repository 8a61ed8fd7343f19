"""What a node says of itself and of the cluster, read with suspicion. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmcache.model.errors import ScaleError
from mmcache.scale.observed import SLOTS, NodeSeen, Other

NOBODY = "?"
"""The primary of a replica that does not know whose it is."""
_ID = re.compile(r"[0-9a-f]{40}")
_OPEN = re.compile(r"\[(\d{1,5})-([<>])-([0-9a-f]{40})\]")
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_DOUBT = frozenset({"fail", "fail?", "noaddr"})
_OVER = frozenset({"success", "failed", "cancelled"})
"""States of a slot migration that is no more. Any other, also one that is not known here, is under way."""
_LARGEST = 1 << 62
_MOST_NODES = 10_000
_NO_SLOTS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class View:
    """CLUSTER NODES of one node."""

    me: Other
    others: Mapping[str, Other]
    """By id, itself included."""
    importing: Mapping[int, str]
    migrating: Mapping[int, str]

    def owner(self, slot: int) -> str | None:
        """Whose it is in this view, by id; None = nobody's."""
        return next((other.id for other in self.others.values() if slot in other.slots), None)


def read_view(nodes: Any, known: dict[str, frozenset[int]] | None = None) -> View:
    """Of the reply to CLUSTER NODES.

    known: sets of slots by how they are written, shared by all views of one look, since most are equal. Raises
    `ScaleError` for what no node says.
    """
    known = {} if known is None else known
    others: dict[str, Other] = {}
    own: tuple[Other, dict[int, str], dict[int, str]] | None = None
    served = 0
    told = _text(nodes, "CLUSTER NODES")
    if told.count("\n") > _MOST_NODES:
        raise ScaleError(f"CLUSTER NODES names more than {_MOST_NODES} nodes")
    for line in told.split("\n"):
        if not line:
            continue
        other, importing, migrating = _read_line(line, known)
        served += len(other.slots)
        if served > SLOTS:
            raise ScaleError("CLUSTER NODES gives a slot to two nodes")
        if other.id in others or ("myself" in other.flags and own is not None):
            raise ScaleError("CLUSTER NODES names a node twice")
        others[other.id] = other
        if "myself" in other.flags:
            own = other, importing, migrating
    if own is None:
        raise ScaleError("CLUSTER NODES does not name the node itself")
    return View(own[0], others, own[1], own[2])


def read_node(nodes: Any, cluster: Any, info: Any, known: dict[str, frozenset[int]]) -> NodeSeen:
    """Of the replies to CLUSTER NODES, CLUSTER INFO and INFO; `moving` stays to be asked for. See `read_view`."""
    view = read_view(nodes, known)
    told, state = fields(info, "INFO"), fields(cluster, "CLUSTER INFO")
    me = view.me
    return NodeSeen(
        id=me.id,
        primary=me.primary,
        in_sync=not me.primary or (told.get("master_link_status") == "up" and told.get("role") == "slave"),
        history=told.get("master_replid", ""),
        offset=_count(told, "slave_repl_offset") if me.primary and "slave_repl_offset" in told else 0,
        unlinked_seconds=_unlinked(told) if me.primary else 0.0,
        unheard_seconds=_unheard(view, told),
        slots=me.slots,
        importing=view.importing,
        migrating=view.migrating,
        epoch=me.epoch,
        others=view.others,
        cluster_ok=state.get("cluster_state") == "ok",
        version=version(told),
        keys=_keys(told),
        used_bytes=_count(told, "used_memory"),
        max_bytes=_count(told, "maxmemory"),
        requests=_count(told, "keyspace_hits") + _count(told, "keyspace_misses"),
        hits=_count(told, "keyspace_hits"),
        misses=_count(told, "keyspace_misses"),
        evicted=_count(told, "evicted_keys"),
        heard_epoch=whole(state.get("cluster_current_epoch", "0")),
    )


def _unlinked(told: Mapping[str, str]) -> float:
    """A link that never was is down since -1 seconds, or since 1970."""
    if told.get("master_link_status") == "up":
        return 0.0
    since = told.get("master_link_down_since_seconds", "")
    return float(since) if since.isdecimal() and len(since) < 10 else float("inf")


def _unheard(view: View, told: Mapping[str, str]) -> dict[str, float]:
    """By its own clock, which need not be right."""
    now = told.get("server_time_usec", "")
    if not now.isdecimal() or len(now) > 18:
        return {}
    return {
        other.id: max(0.0, int(now) / 1e6 - other.heard_ms / 1e3) for other in view.others.values() if other.heard_ms
    }  # fmt: skip


def version(told: Mapping[str, str]) -> str:
    """Such as `valkey 9.1.2`: server and version of what INFO says."""
    if "valkey_version" in told:
        return f"valkey {told['valkey_version']:.20}"
    return f"redis {told.get('redis_version', NOBODY):.20}"


def moves_slots_itself(version: str) -> bool:
    """Whether a server of this version has CLUSTER MIGRATESLOTS."""
    name, _, number = version.partition(" ")
    major = number.partition(".")[0]
    return name == "valkey" and major.isdecimal() and len(major) < 5 and int(major) >= 9


def fields(reply: Any, command: str) -> dict[str, str]:
    """The lines of INFO and the like, `name:value`. Raises `ScaleError`."""
    pairs = (line.partition(":") for line in _text(reply, command).splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def jobs(reply: Any) -> list[dict[str, str]]:
    """Of CLUSTER GETSLOTMIGRATIONS, newest first. Raises `ScaleError`."""
    try:
        if not isinstance(reply, list):
            raise TypeError
        return [
            {_plain(entry[at]): _plain(entry[at + 1]) for at in range(0, len(entry) - 1, 2)} for entry in reply
        ]  # fmt: skip
    except TypeError as error:
        raise ScaleError(f"CLUSTER GETSLOTMIGRATIONS answers {reply!r:.40}") from error


def under_way(job: Mapping[str, str]) -> bool:
    """Whether a slot migration is not over."""
    return job.get("state") not in _OVER


def _read_line(line: str, known: dict[str, frozenset[int]]) -> tuple[Other, dict[int, str], dict[int, str]]:
    """`id ip:port@bus[,name[,more]] flags primary ping pong epoch link slots… [open slots]…`."""
    id_, address, flags, primary, *rest = words if len(words := line.split(" ")) >= 8 else [""] * 8
    if not _ID.fullmatch(id_) or (primary != "-" and not _ID.fullmatch(primary)):
        raise ScaleError(f"CLUSTER NODES has a line that names no node: {line:.60}")
    _, heard, epoch, link, *ranges = rest
    importing: dict[int, str] = {}
    migrating: dict[int, str] = {}
    first_open = next((at for at, word in enumerate(ranges) if word.startswith("[")), len(ranges))
    for word in ranges[first_open:]:
        match = _OPEN.fullmatch(word)
        if match is None or int(match[1]) >= SLOTS:
            raise ScaleError(f"CLUSTER NODES has an open slot that is none: {word:.60}")
        (importing if match[2] == "<" else migrating)[int(match[1])] = match[3]
    named = frozenset(flags.split(","))
    host, port = _place(address)
    return (
        Other(
            id=id_, host=host, port=port, flags=named,
            primary=primary if primary != "-" else NOBODY if "slave" in named else "",
            linked=link == "connected", epoch=whole(epoch),
            slots=_slots(" ".join(ranges[:first_open]), known),
            heard_ms=0 if named.isdisjoint(_DOUBT) else whole(heard),
        ),
        importing,
        migrating,
    )  # fmt: skip


def _place(address: str) -> tuple[str, int]:
    """The IP (its name where it tells no IP) and the port. IPv6 has no brackets here."""
    place, _, names = address.partition(",")
    host, _, port = place.partition("@")[0].rpartition(":")
    number = whole(port)
    if number > 65535:
        raise ScaleError(f"CLUSTER NODES has an address that is none: {address:.60}")
    name = names.partition(",")[0]
    return host or (name if "=" not in name else ""), number


def _slots(ranges: str, known: dict[str, frozenset[int]]) -> frozenset[int]:
    if not ranges:
        return _NO_SLOTS
    if (found := known.get(ranges)) is not None:
        return found
    slots: set[int] = set()
    for word in ranges.split(" "):
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < SLOTS:
            raise ScaleError(f"CLUSTER NODES has slots that are none: {word:.40}")
        slots.update(range(first, last + 1))
    return known.setdefault(ranges, frozenset(slots))


def _keys(told: Mapping[str, str]) -> int:
    """Of all databases: `db0:keys=5,expires=0,…`."""
    total = 0
    for name, value in told.items():
        if name.startswith("db") and name[2:].isdigit() and value.startswith("keys="):
            total += whole(value[5:].partition(",")[0])
    return total


def _count(told: Mapping[str, str], name: str) -> int:
    if name not in told:
        raise ScaleError(f"INFO does not tell {name}; may we ask for all of it?")
    return whole(told[name])


def whole(digits: str) -> int:
    """A number that is not negative. Raises `ScaleError`."""
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) < _LARGEST):
        raise ScaleError(f"not a number: {digits:.30}")
    return int(digits)


def _text(reply: Any, command: str) -> str:
    if not isinstance(reply, bytes):
        raise ScaleError(f"{command} answers {reply!s:.100}")
    return reply.decode(errors="replace")


def _plain(told: Any) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
