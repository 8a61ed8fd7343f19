"""Of two nodes that claim a slot, the one with the higher config epoch is believed, and the other drops its keys.

A node that is given a slot takes an epoch above all that it has heard of. It may not have heard of its predecessor's
last one: then a packet that the predecessor sent before it gave the slot away takes the slot from the new owner, whose
keys are deleted, though nobody else has them. Nor may it take the same one: of two equal epochs the servers raise that
of the smaller id, be it the predecessor's. So a slot is given away only when the receiver has heard.
"""

from __future__ import annotations

from typing import NamedTuple

from mmcache.model.errors import ScaleError
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.views import fields, whole

_MOST_SECONDS = 30.0
"""Nodes tell each other at least every half of `cluster-node-timeout`, which is 15 s if nobody has changed it."""


class Epochs(NamedTuple):
    """Of one node."""

    own: int
    """It claims its slots with it."""
    heard: int
    """The highest that it knows of."""


def read_epochs(name: str, present: Present) -> Epochs:
    """Now. Raises `ScaleError`."""
    contact = present.contact(name)
    told = fields(contact.ask("CLUSTER", "INFO"), "CLUSTER INFO")
    try:
        return Epochs(whole(told.get("cluster_my_epoch", "")), whole(told.get("cluster_current_epoch", "")))
    except ScaleError as error:
        raise ScaleError(f"{contact.place}: CLUSTER INFO does not tell its epochs") from error


def outranks(target: Epochs, source: Epochs) -> bool:
    """Whether the target will claim a slot that it is given now with a higher epoch than the source has.

    It takes a new one unless it has the highest already; 0 is none.
    """
    claimed = target.own if 0 < target.own == target.heard else target.heard + 1
    return claimed > source.own


def await_rank(source: str, target: str, present: Present, cancelled: Cancelled) -> bool:
    """Until the target outranks the source; False when cancelled. Raises `ScaleError`."""

    def met() -> bool:
        from_ = read_epochs(source, present)
        return outranks(read_epochs(target, present), from_)

    if present.patiently(met, cancelled, _MOST_SECONDS):
        return True
    if cancelled():
        return False
    raise ScaleError(f"{target} does not hear of {source}'s epoch: can their cluster ports reach each other?")
