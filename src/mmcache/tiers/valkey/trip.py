"""One trip: to each node what is for it, all nodes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.limit import LateError, Limit
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
    """Ask all. A server's fault raises nothing; it is in its batch."""
    try:
        _begin(batches, limit)
        _settle(batches, limit)
        again = [batch for batch in batches if batch.wire is not None and batch.wire.lost and batch.wire.used]
        if again:  # they lay idle, and the other side had given them up
            _renew(again, limit)
            _settle(again, limit)
    except BaseException:  # an interrupt, or words that cannot be sent: what comes now answers nobody
        for batch in batches:
            if batch.wire is not None:
                batch.wire.close()
        raise
    finally:
        for batch in batches:
            wire = batch.wire
            if wire is not None:
                batch.replies, batch.fault, batch.late = wire.replies, wire.fault, wire.late
                batch.peer.give(wire)


def _begin(batches: Sequence[Batch], limit: Limit) -> None:
    """To whom a connection lies idle is written before others are dialled, which may take time."""
    alone = len(batches) == 1
    for batch in batches if alone else sorted(batches, key=lambda batch: not batch.peer.at_hand):
        rests = batch.peer.rests()
        if rests is not None:
            batch.fault, batch.unasked = rests, True
            continue
        try:
            batch.wire = batch.peer.take(limit if alone else limit.part(0.5))
        except TierError as error:
            batch.fault = str(error)
            batch.late, batch.unasked = isinstance(error, LateError), isinstance(error, BusyError)
            continue
        batch.wire.begin(batch.commands)
        if not alone:
            batch.wire.start(limit)


def _renew(batches: Sequence[Batch], limit: Limit) -> None:
    for batch in batches:
        lost, batch.wire = batch.wire, None
        assert lost is not None
        try:
            batch.wire = batch.peer.fresh(lost, limit if len(batches) == 1 else limit.part(0.5))
        except TierError as error:
            batch.fault, batch.late = str(error), isinstance(error, LateError)
            continue
        batch.wire.begin(batch.commands)


def _settle(batches: Sequence[Batch], limit: Limit) -> None:
    wires = [batch.wire for batch in batches if batch.wire is not None and batch.wire.fault is None]
    if len(wires) == 1:
        wires[0].settle(limit)
    elif wires:
        settle_all(wires, limit)
