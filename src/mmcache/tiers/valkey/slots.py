"""Which node of a cluster holds a key. Pure."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass
from typing import Any

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.address import Node
from mmcache.tiers.valkey.replies import Refusal

SLOTS = 16384


@dataclass(frozen=True, slots=True)
class Shard:
    """A primary and its replicas."""

    primary: Node
    replicas: tuple[Node, ...] = ()


Slots = list[Shard | None]
"""By slot."""


def slot_of(key: bytes) -> int:
    """CRC16 (XModem) of the key, or of what stands between its first braces."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) & (SLOTS - 1)


def read_slots(reply: Any, asked: Node) -> Slots:
    """What `CLUSTER SLOTS` says. Raises `TierError` for what is no such reply."""
    if isinstance(reply, Refusal):
        hint = "; it is no cluster: leave out ?cluster=true" if "cluster support disabled" in reply else ""
        raise TierError(f"{asked} does not say who holds what: {reply}{hint}")
    slots: Slots = [None] * SLOTS
    try:
        for first, last, primary, *replicas in reply:
            if not 0 <= first <= last < SLOTS:
                raise ValueError
            nodes = [_node(one, asked) for one in (primary, *replicas)]
            if nodes[0] is not None:
                shard = Shard(nodes[0], tuple(node for node in nodes[1:] if node is not None))
                slots[first : last + 1] = [shard] * (last + 1 - first)
    except (TypeError, ValueError, LookupError, UnicodeDecodeError) as error:
        raise TierError(f"{asked} answers CLUSTER SLOTS with {reply!r:.60}; is it Valkey or Redis?") from error
    return slots


def text(told: Any) -> str:
    """Of a string that a server sent. Raises `TypeError`, `ValueError`: anything else would be taken for a size."""
    if not isinstance(told, bytes):
        raise TypeError("no string")
    return told.decode()


def _node(told: Any, asked: Node) -> Node | None:
    host, port = text(told[0] or b""), int(told[1])
    return None if host == "?" else Node(host or asked.host, port)


def read_redirection(refusal: str, asked: Node) -> tuple[int, Node] | None:
    """Slot and node of `MOVED 3999 127.0.0.1:6381` or `ASK …`; None when the node is not known there."""
    try:
        _, slot, place = refusal.split(" ")
        host, _, port = place.rpartition(":")
        if host == "?" or not 0 <= int(slot) < SLOTS:
            return None
        return int(slot), Node(host.strip("[]") or asked.host, int(port))
    except ValueError:
        return None
