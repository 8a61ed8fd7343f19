"""One server: a bounded pool of connections to it, and whether it rests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from mmcache.model.errors import TierError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.address import Node
from mmcache.tiers.valkey.breaker import Breaker
from mmcache.tiers.valkey.dial import Dialer
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.wire import Wire
from mmcache.tiers.valkey.words import Command, in_full


class BusyError(TierError):
    """All connections were in use for the whole time: the node itself may be well."""


class Peer:
    """A node with its connections. Threads share it."""

    def __init__(
        self,
        node: Node,
        dialer: Dialer,
        settings: SharedSettings,
        monotonic: Callable[[], float],
        role: Command | None = None,
    ) -> None:
        """Opens nothing yet. For `role` see `Dialer.dial`."""
        self.node = node
        self.breaker = Breaker(settings.rest_seconds)
        self.opened = 0
        """Connections, ever."""
        self.scripts: set[str] = set()
        """Digests of those whose source it was sent."""
        self._dialer, self._monotonic, self._role = dialer, monotonic, role
        self._most = settings.connections
        self._closed = False
        self.renew()

    def renew(self) -> None:
        """Without any connection: also in a forked child."""
        for wire in getattr(self, "_idle", ()):
            wire.forget()
        self._idle: deque[Wire] = deque()
        self._out = 0
        """Connections open, idle or in use."""
        self._waiting = 0
        self._freed = threading.Condition()

    def rests(self) -> str | None:
        """Why it must not be asked now; None = it may be, and one that is let through has to report."""
        breaker = self.breaker
        if not breaker.open or breaker.allows(self._monotonic()):
            return None
        return f"it is left alone for a while: {breaker.why}"

    def introduced(self, words: Command) -> Command:
        """`words` that run a script, with its source where the node was not sent that yet."""
        full = None if words[1] in self.scripts else in_full(words)
        if full is None:
            return words
        self.scripts.add(str(words[1]))
        return full

    def take(self, limit: Limit) -> Wire:
        """A connection, idle or new. Raises `TierError`."""
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:
                break
            if wire.sound:
                return wire
            self._end(wire)
        with self._freed:
            if self._out >= self._most:
                idle = self._await(limit)
                if idle is not None:
                    return idle
            self._out += 1
        return self._open(limit)

    def _await(self, limit: Limit) -> Wire | None:
        """An idle one, or None when there is room for a new one. The lock is held."""
        self._waiting += 1
        try:
            while self._out >= self._most:
                try:
                    wire = self._idle.pop()
                except IndexError:
                    left = limit.left()
                    if left <= 0 or not self._freed.wait(left):
                        raise BusyError(f"all {self._most} connections were busy; raise `connections`") from None
                    continue
                if wire.sound:
                    return wire
                self._end(wire)
            return None
        finally:
            self._waiting -= 1

    @property
    def at_hand(self) -> bool:
        """Whether a connection lies idle."""
        return bool(self._idle)

    def fresh(self, old: Wire, limit: Limit) -> Wire:
        """A new connection in place of one that was lost; others that lay idle meanwhile are lost too.

        Raises `TierError`.
        """
        self.end_idle()
        old.close()
        return self._open(limit)

    def end_idle(self) -> None:
        """Close what lies idle."""
        while True:
            try:
                self._end(self._idle.pop())
            except IndexError:
                return

    @property
    def connections(self) -> int:
        """Open, idle or in use."""
        return self._out

    def dial(self, limit: Limit) -> Wire:
        """A new connection outside the pool. Raises `TierError`."""
        return self._dialer.dial(self.node, limit, self._role)

    def _open(self, limit: Limit) -> Wire:
        try:
            wire = self.dial(limit)
        except BaseException:  # also an interrupt: or the pool would shrink
            self._less()
            raise
        self.opened += 1
        return wire

    def give(self, wire: Wire) -> None:
        """It is not needed any more."""
        if wire.fault is not None or self._closed:
            self._end(wire)
            return
        self._idle.append(wire)
        if self._waiting:
            with self._freed:
                self._freed.notify()

    def _end(self, wire: Wire) -> None:
        wire.close()
        self._less()

    def _less(self) -> None:
        with self._freed:
            self._out -= 1
            self._freed.notify()

    def close(self) -> None:
        """Close what lies idle, and the rest when it is given back."""
        self._closed = True
        self.end_idle()
