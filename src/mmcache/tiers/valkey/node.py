"""One server: how it is reached, a bounded pool of connections to it, and whether it rests."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from mmcache.model.errors import TierError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey import tls
from mmcache.tiers.valkey.address import Address
from mmcache.tiers.valkey.breaker import Breaker
from mmcache.tiers.valkey.limit import LateError, Limit
from mmcache.tiers.valkey.replies import Refusal
from mmcache.tiers.valkey.stream import Stream
from mmcache.tiers.valkey.wire import Wire
from mmcache.tiers.valkey.words import Command

_HINTS = {
    "WRONGPASS": "see the user and the password of the shared tier",
    "NOAUTH": "it wants a password: put it into the URL, or into $MMCACHE_SHARED_PASSWORD",
    "NOPERM": "see the user's ACL",
    "ERR AUTH": "it has no password: leave it out",
}  # fmt: skip


class Node(NamedTuple):
    """Where a server listens. (A tuple, since its hash is asked for once a request.)"""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Dialer:
    """Opens connections: TCP, TLS, who we are, which database."""

    def __init__(self, settings: SharedSettings, address: Address) -> None:
        """Raises `SettingsError`."""
        self._largest = settings.largest_bytes
        self._tls: ssl.SSLContext | None = tls.context(settings) if address.tls else None
        login: list[Command] = []
        if address.password is not None:
            user = () if address.username is None else (address.username,)
            login.append(("AUTH", *user, address.password))
        self._login = login
        self._select: list[Command] = [("SELECT", address.database)] if address.database else []

    def dial(self, node: Node, limit: Limit, role: Command | None = None) -> Wire:
        """A connection that may be asked. `role`: `READONLY` for a replica, `ROLE` to be sure of a master.

        Raises `TierError`.
        """
        greetings = [*self._login, *self._select, *([] if role is None else [role])]
        return self._greet(self._connect(node, limit), greetings, limit)

    def dial_sentinel(self, node: Node, limit: Limit) -> Wire:
        """Sentinels have users of their own; ours are not shown to them. Raises `TierError`."""
        return self._connect(node, limit)

    def _connect(self, node: Node, limit: Limit) -> Wire:
        connected: socket.socket | None = None
        try:
            connected = _connected(node, limit)
            if self._tls is None:
                connected.settimeout(None)
                stream = Stream(connected)
            else:
                stream = tls.wrap(connected, node.host, max(limit.left(), 0.001), self._tls)
        except TimeoutError as error:
            raise LateError("no connection in time") from error
        except OSError as error:
            _close(connected)
            raise TierError(f"no connection: {error.strerror or error}") from error
        except TierError:
            _close(connected)
            raise
        return Wire(stream, self._largest)

    @staticmethod
    def _greet(wire: Wire, greetings: list[Command], limit: Limit) -> Wire:
        if not greetings:
            return wire
        wire.begin(greetings)
        wire.settle(limit)
        for words, reply in zip(greetings, wire.replies, strict=False):
            wrong = isinstance(reply, Refusal)
            if wrong or (words[0] == "ROLE" and not (isinstance(reply, list) and reply[:1] == [b"master"])):
                wire.close()
                raise TierError(hinted(reply) if wrong else "it is no master")
        if wire.fault is not None:
            raise LateError(wire.fault) if wire.late else TierError(wire.fault)
        wire.used = False
        return wire


def hinted(refusal: str) -> str:
    """What the server said, and what to do."""
    return next((f"{refusal}; {hint}" for code, hint in _HINTS.items() if refusal.startswith(code)), refusal)


def _connected(node: Node, limit: Limit) -> socket.socket:
    """The first of the host's addresses that can be reached. Raises `OSError`."""
    failure: OSError = OSError(f"{node.host} has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max(limit.left(), 0.001))
            made.connect(place)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(made)
            return made
        except OSError as error:
            made.close()
            failure = error
    raise failure


def _keep_alive(connected: socket.socket) -> None:
    """So that what stands between, such as a firewall, does not forget an idle connection."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _close(connected: socket.socket | None) -> None:
    if connected is not None:
        connected.close()


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
