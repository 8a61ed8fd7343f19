"""One call of `Client.ask`: trips until every request has its reply, its refusal, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.dial import hinted
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.routes import Routes
from mmcache.tiers.valkey.slots import read_redirection
from mmcache.tiers.valkey.trip import Batch, travel
from mmcache.tiers.valkey.words import Command, Request, in_full

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05
_PATIENT_HOPS = 4
"""So many redirections are followed at once; then nodes disagree, and are given time."""
_NOT_NOW = {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY"}
"""What passes."""
_NOT_WELL = {"LOADING", "MASTERDOWN", "BUSY"}
"""What a node says that had better be left alone for a while."""
_NOT_LET_IN = ("NOAUTH", "WRONGPASS", "DENIED", "ERR max number of clients")
_ASKING: Command = ("ASKING",)


class Call:
    """State of one call: `replies` by place, and what is still to be asked."""

    def __init__(
        self,
        requests: Sequence[Request],
        routes: Routes,
        limit: Limit,
        report: Callable[..., None],
        replica_reads: bool = False,
    ) -> None:
        """`report(what, peer)`: something happened that is counted, or that a watcher wants to know."""
        self.replies: list[Any] = [None] * len(requests)
        self._requests, self._routes, self._limit, self._report = requests, routes, limit, report
        self._hops: dict[int, Peer] = {}
        """Where the server sent us."""
        self._asking: set[int] = set()
        """Requests for a slot that is only half there."""
        self._words: dict[int, Command] = {}
        """Instead of the request's own."""
        self._primary: set[int] | range = set() if replica_reads else range(len(requests))
        """Requests that are for primaries only: also those that a replica failed to answer."""
        self._why: dict[int, str] = {}
        """What was said last, instead of a reply."""
        self._again: list[int] = []
        self._pause = False
        self._tired: dict[Peer, str] = {}

    def run(self, sleep: Callable[[float], None]) -> list[Any]:
        """All replies, in order."""
        todo: Sequence[int] = range(len(self._requests))
        pause, rounds = _FIRST_PAUSE, 0
        while True:
            self._again, self._pause = [], False
            self._tired.clear()
            batches = self._batches(todo)
            moved = self._limit.moved
            travel(batches, self._limit)
            for batch in batches:
                self._take_in(batch)
            asked, todo = len(todo), self._again
            if not todo:
                return self.replies
            rounds += 1
            if len(todo) == asked and (self._pause or rounds > _PATIENT_HOPS):
                self._limit.moved = moved  # sent in vain: else a large value could be sent again for ever
            rest = pause if self._pause or rounds > _PATIENT_HOPS else 0.0
            if self._limit.left() <= rest:
                break
            if rest:
                sleep(rest)
                pause = min(2 * pause, _LONGEST_PAUSE)
        for place in todo:
            self.replies[place] = Down(self._why.get(place, "no reply in time"))
        for peer, why in self._tired.items():
            self._report("failed", peer, why)
        return self.replies

    def _batches(self, todo: Iterable[int]) -> list[Batch]:
        batches: dict[Peer, Batch] = {}
        for place in todo:
            request = self._requests[place]
            peer = self._hops.pop(place, None)
            if peer is None:
                try:
                    peer = self._routes.find(request.key, self._from_replica(place), self._limit)
                except TierError as error:
                    self.replies[place] = Down(error)
                    continue
            batch = batches.get(peer)
            if batch is None:
                batch = batches[peer] = Batch(peer)
            batch.places.append(place)
            if place in self._asking:
                batch.commands.append(_ASKING)
            words = self._words.get(place, request.words)
            batch.commands.append(peer.introduced(words) if words[0] == "EVALSHA" else words)
        return list(batches.values())

    def _from_replica(self, place: int) -> bool:
        return place not in self._primary and self._requests[place].replica

    def _leave_replica(self, place: int) -> bool:
        """Ask the primary from now on. Whether that changes something."""
        if not self._from_replica(place):
            return False
        assert isinstance(self._primary, set)
        self._primary.add(place)
        return True

    def _take_in(self, batch: Batch) -> None:
        if batch.fault is not None:
            self._fault(batch)
        replies = iter(batch.replies)
        well = batch.fault is None
        for place in batch.places:
            if self._asking and place in self._asking:
                next(replies, None)
            try:
                reply = next(replies)
            except StopIteration:
                self._unanswered(place, batch)
                continue
            if reply.__class__ is Refusal:
                well = self._refused(place, Refusal(reply), batch.peer) and well
            else:
                self.replies[place] = reply
        if well and batch.peer.breaker.open:
            self._report("served", batch.peer)

    def _fault(self, batch: Batch) -> None:
        batch.peer.scripts.clear()  # it may have begun anew
        if batch.unasked:
            self._routes.look.soon()
            return
        self._report("timeouts" if batch.late else "lost", batch.peer)
        self._report("failed", batch.peer, batch.fault)
        if batch.late or not self._routes.may_change:
            self._routes.look.soon()
        else:
            self._routes.look.now(self._limit)

    def _unanswered(self, place: int, batch: Batch) -> None:
        request, peer = self._requests[place], batch.peer
        self._why[place] = f"{peer.node}: {batch.fault}"
        if self._leave_replica(place):
            self._again.append(place)
            return
        try:
            elsewhere = not batch.late and self._routes.find(request.key, False, self._limit) is not peer
        except TierError:
            elsewhere = False
        if elsewhere:
            self._again.append(place)
        else:
            self.replies[place] = Down(self._why[place])

    def _refused(self, place: int, refusal: Refusal, peer: Peer) -> bool:
        """Follow it, wait, or give up. Whether the node is well."""
        code = refusal.partition(" ")[0]
        self._why[place] = f"{peer.node} says: {refusal}"
        if code in ("MOVED", "ASK"):
            self._redirected(place, refusal, code, peer)
        elif code in _NOT_NOW:
            return self._not_now(place, code, refusal, peer)
        elif code == "READONLY" and self._routes.may_change:
            self._pause = True
            self._routes.look.now(self._limit)
            peer.end_idle()  # sentinels: those were made when it was the master
            self._again.append(place)
        elif code == "NOSCRIPT":
            full = in_full(self._requests[place].words)
            if full is None or place in self._words:
                self.replies[place] = refusal
            else:
                self._words[place] = full
                self._hops[place] = peer
                self._again.append(place)
        elif refusal.startswith(_NOT_LET_IN):
            self.replies[place] = Down(f"{peer.node} says: {hinted(refusal)}")
        else:
            self._asking.discard(place)
            self.replies[place] = refusal
        return True

    def _redirected(self, place: int, refusal: Refusal, code: str, peer: Peer) -> None:
        self._report("moved" if code == "MOVED" else "asked", peer)
        self._asking.discard(place)
        self._leave_replica(place)
        told = read_redirection(refusal, peer.node)
        self._again.append(place)
        if told is None:
            self._pause = True
            self._routes.look.soon()
            return
        try:
            if code == "MOVED":
                self._hops[place] = self._routes.moved(*told)
            else:
                self._hops[place] = self._routes.peer(told[1])
                self._asking.add(place)
        except TierError as error:
            self._again.pop()
            self.replies[place] = Down(f"{peer.node}: {error}")

    def _not_now(self, place: int, code: str, refusal: str, peer: Peer) -> bool:
        self._report("waits", peer)
        self._again.append(place)
        if self._leave_replica(place):
            return False
        self._pause = True
        if code == "TRYAGAIN":
            self._hops[place] = peer
            return True
        self._asking.discard(place)
        self._routes.look.soon()
        if code in _NOT_WELL or refusal == "CLUSTERDOWN The cluster is down":
            self._tired[peer] = refusal
        return False
