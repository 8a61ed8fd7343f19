"""Keys at a node that neither serves their slot nor is being given it, left over from a move that ended otherwise.

Nobody is sent to them. What was dropped since then is here still, and would be a hit again when the node is given the
slot. Valkey 9 ends with a failed assertion when its own migration brings it a slot of which it has keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Contact
from mmcache.scale.present import Present
from mmcache.scale.talk import Command
from mmcache.scale.views import read_view

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


def discard(slots: Sequence[int], importing: Contact) -> list[bytes]:
    """At a node to which they are open, but of which nobody knows yet; what was there.

    It looks again before each bite whose the slot is: whoever slept in between may find that another has brought the
    move to its end. Raises `ScaleError`.
    """
    counts = importing.insist([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]) if slots else []
    odd = [slot for slot, count in zip(slots, counts, strict=True) if count]
    found: list[bytes] = []
    for slot in odd:
        while keys := importing.ask("CLUSTER", "GETKEYSINSLOT", slot, _AT_ONCE):
            view = read_view(importing.ask("CLUSTER", "NODES"))
            if slot in view.me.slots or slot not in view.importing:
                raise ScaleError(f"{importing.place}: slot {slot} is not being given to it any more")
            unlink(keys, importing)
            found += keys
    return found


def unlink(keys: Sequence[bytes], importing: Contact) -> None:
    """Of slots that are open to the node. Raises `ScaleError`."""
    commands: list[Command] = [words for key in keys for words in (("ASKING",), ("UNLINK", key))]
    if commands:
        importing.insist(commands)
