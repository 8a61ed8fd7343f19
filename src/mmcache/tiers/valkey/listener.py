"""`Listener`: a connection of its own for commands that wait on the server, such as XREAD BLOCK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmcache import forks
from mmcache.model.errors import TierError
from mmcache.tiers.valkey.dial import hinted
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.routes import Routes
from mmcache.tiers.valkey.slots import read_redirection
from mmcache.tiers.valkey.wire import Wire
from mmcache.tiers.valkey.words import Command

_MOST_HOPS = 5
_NOT_HERE = ("READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING")
"""What a node says whose place another one may have taken: also one that is cut off from the majority."""


class Listener:
    """Used by one thread; any may close it. It connects at first use, and anew after a failure."""

    fork_order = 6

    def __init__(self, routes: Routes, key: bytes, monotonic: Callable[[], float], report: Callable[..., None]) -> None:
        self._routes, self._key, self._monotonic, self._report = routes, key, monotonic, report
        self._wire: Wire | None = None
        self._peer: Peer | None = None
        self._closed = False
        forks.join(self)

    def ask(self, command: Command, timeout_seconds: float) -> Any:
        """The reply, a `Refusal`, or a `Down`. The time must be longer than what the server is told to wait."""
        limit = Limit(self._monotonic, timeout_seconds)
        reply: Any = None
        for _ in range(_MOST_HOPS):
            if self._closed:
                return Down("the listener was closed")
            reply = self._once(command, limit)
            if not isinstance(reply, Refusal):
                return reply
            if reply.startswith(_NOT_HERE):
                self._hang_up()
                self._routes.look.soon()
            if not reply.startswith(("MOVED ", "ASK ")) or not self._follow(reply):
                return Down(hinted(reply)) if reply.startswith("NOAUTH") else reply
        return reply

    def _once(self, command: Command, limit: Limit) -> Any:
        known = self._wire
        try:
            wire = known if known is not None and known.sound else self._connect(limit)
        except TierError as error:
            return Down(error)
        wire.begin([command])
        wire.settle(limit)
        if wire.fault is None:
            return wire.replies[0]
        peer = self._peer
        self._hang_up()
        if peer is not None and not self._closed:
            self._report("timeouts" if wire.late else "lost", peer)
            self._routes.look.soon()
            return Down(f"{peer.node}: {wire.fault}")
        return Down("the listener was closed")

    def _connect(self, limit: Limit) -> Wire:
        self._hang_up()
        peer = self._peer or self._routes.find(self._key, False, limit)
        rests = peer.rests()
        if rests is not None:
            self._routes.look.soon()
            raise TierError(f"{peer.node}: {rests}")
        try:
            wire = self._wire = peer.dial(limit)
        except TierError as error:
            self._report("failed", peer, str(error))
            self._routes.look.soon()
            raise TierError(f"{peer.node}: {error}") from error
        if peer.breaker.open:
            self._report("served", peer)
        self._peer = peer
        if self._closed:
            wire.close()
        return wire

    def _follow(self, refusal: str) -> bool:
        """Go where the server says the key is now. Whether that is known."""
        peer = self._peer
        told = None if peer is None else read_redirection(refusal, peer.node)
        self._hang_up()
        if told is None:
            self._routes.look.soon()
            return False
        try:
            self._peer = self._routes.moved(*told) if refusal.startswith("MOVED") else self._routes.peer(told[1])
        except TierError:
            return False
        return True

    def _hang_up(self) -> None:
        wire, self._wire, self._peer = self._wire, None, None
        if wire is not None:
            wire.close()

    def close(self) -> None:
        """Also ends an `ask` that waits, with a `Down`."""
        self._closed = True
        wire = self._wire
        if wire is not None:
            wire.close()

    def before_fork(self) -> None:
        """See `Forkable`."""

    def after_fork(self, child: bool) -> None:
        """See `Forkable`."""
        wire = self._wire
        if child and wire is not None:
            self._wire = self._peer = None
            wire.forget()
