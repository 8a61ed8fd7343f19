"""One trip: to each node what is for it, all nodes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import BusyError, Peer
from mmcache.tiers.valkey.wire import Wire, settle_all
from mmcache.tiers.valkey.words import Command


class Batch:
    """What one node is asked in one trip, and what came of it."""

    __slots__ = ("commands", "fault", "late", "peer", "places", "replies", "unasked", "wire")

    def __init__(self, peer: Peer, commands: Sequence[Command] = ()) -> None:
        self.peer = peer
        self.places: list[int] = []
        """Of the caller's requests."""
        self.commands = list(commands)
        self.wire: Wire | None = None
        self.replies: list[object] = []
        """As many as came."""
        self.fault: str | None = None
        """Why no more came."""
        self.late = self.unasked = False
        """Whether the fault is that time was up; whether the node was not even asked, so the fault is not its own."""


def travel(batches: Sequence[Batch], limit: Limit) -> None:
    """Ask all. Raises nothing; faults are in the batches."""
    alone = len(batches) == 1
    asked: list[Batch] = []
    # who has a connection lying idle is written to before others are dialled, which may take time
    for batch in batches if alone else sorted(batches, key=lambda batch: not batch.peer.at_hand):
        rests = batch.peer.rests()
        if rests is not None:
            batch.fault, batch.unasked = rests, True
        elif _begun(batch, limit if alone else limit.part(0.5)):
            asked.append(batch)
    _settle(asked, limit)
    again = [batch for batch in asked if batch.wire is not None and batch.wire.lost and batch.wire.used]
    for batch in again:  # it lay idle, and the other side had given it up
        assert batch.wire is not None
        try:
            batch.wire = batch.peer.fresh(batch.wire, limit)
            batch.wire.begin(batch.commands)
        except TierError as error:
            batch.fault, batch.wire = str(error), None
    _settle([batch for batch in again if batch.wire is not None], limit)
    for batch in asked:
        wire = batch.wire
        if wire is None:
            continue
        batch.replies, batch.fault, batch.late = wire.replies, wire.fault, wire.late
        batch.peer.give(wire)


def _begun(batch: Batch, limit: Limit) -> bool:
    try:
        batch.wire = batch.peer.take(limit)
    except TierError as error:
        batch.fault, batch.unasked = str(error), isinstance(error, BusyError)
        batch.late = limit.left() <= 0
        return False
    batch.wire.begin(batch.commands)
    return True


def _settle(batches: Sequence[Batch], limit: Limit) -> None:
    wires = [batch.wire for batch in batches if batch.wire is not None]
    if len(wires) == 1:
        wires[0].settle(limit)
    elif wires:
        settle_all(wires, limit)
