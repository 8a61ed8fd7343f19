"""Keys at a node that neither serves their slot nor is being given it, left over from a move that ended otherwise.

Nobody is sent to them. What was dropped since then is here still, and would be a hit again when the node is given the
slot. Valkey 9 ends with a failed assertion when its own migration brings it a slot of which it has keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.scale.access import Contact
from mmcache.scale.present import Present
from mmcache.scale.talk import Command

_AT_ONCE = 200


def clear(slots: Sequence[int], name: str, owner: str, present: Present) -> None:
    """At a node to which these slots of `owner` (an id) are not open. Raises `ScaleError`."""
    contact = present.contact(name)
    counts = contact.insist([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]) if slots else []
    if odd := [slot for slot, count in zip(slots, counts, strict=True) if count]:
        chorus = present.chorus(name)
        chorus.insist([[("CLUSTER", "SETSLOT", slot, "IMPORTING", owner)] for slot in odd])
        discard(odd, contact)
        chorus.tell([[("CLUSTER", "SETSLOT", slot, "STABLE")] for slot in odd])


def discard(slots: Sequence[int], importing: Contact) -> None:
    """At a node to which they are open, but of which nobody knows yet. Raises `ScaleError`."""
    counts = importing.insist([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]) if slots else []
    for slot, count in zip(slots, counts, strict=True):
        while count and (keys := importing.ask("CLUSTER", "GETKEYSINSLOT", slot, _AT_ONCE)):
            unlink(keys, importing)


def unlink(keys: Sequence[bytes], importing: Contact) -> None:
    """Of slots that are open to the node. Raises `ScaleError`."""
    commands: list[Command] = [words for key in keys for words in (("ASKING",), ("UNLINK", key))]
    if commands:
        importing.insist(commands)
