"""Opening a connection: TCP, TLS, who we are, which database, and whether the other side is what it should be."""

from __future__ import annotations

import socket
import ssl

from mmcache.model.errors import SettingsError, TierError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey import tls
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.limit import LateError, Limit
from mmcache.tiers.valkey.replies import Refusal
from mmcache.tiers.valkey.resolve import places
from mmcache.tiers.valkey.stream import Stream
from mmcache.tiers.valkey.wire import Wire
from mmcache.tiers.valkey.words import Command

_LEAST_BYTES = 1 << 20
"""That a reply may have however small blocks must be: what is kept of clocks, news and editions is no block."""
_HINTS = {
    "WRONGPASS": "see the user and the password of the shared tier",
    "NOAUTH": "it wants a password: put it into the URL, or into $MMCACHE_SHARED_PASSWORD",
    "NOPERM": "see the user's ACL",
    "ERR AUTH": "it has no password: leave it out",
}  # fmt: skip


class Dialer:
    """Opens connections to the nodes of one address."""

    def __init__(self, settings: SharedSettings, address: Address) -> None:
        """Raises `SettingsError`."""
        self._largest = max(settings.largest_bytes, _LEAST_BYTES)
        self._tls: ssl.SSLContext | None = tls.context(settings) if address.tls else None
        self._name = settings.tls_name
        if self._tls is None and any((settings.tls_ca, settings.tls_cert, settings.tls_key, self._name)):
            raise SettingsError("shared: tls_ca and the like are for TLS, and the address is not: valkeys://…")
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
                stream = tls.wrap(connected, self._name or node.host, max(limit.left(), 0.001), self._tls)
        except TimeoutError as error:
            raise LateError("no connection in time") from error
        except OSError as error:
            _close(connected)
            raise TierError(f"no connection: {error.strerror or error}") from error
        except (ValueError, OverflowError) as error:  # a name that cannot be one, which another server may have told
            _close(connected)
            raise TierError(f"no connection: {error}") from error
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
                raise TierError(hinted(_without(words, reply)) if wrong else "it is no master")
        if wire.fault is not None:
            raise LateError(wire.fault) if wire.late else TierError(wire.fault)
        wire.used = False
        return wire


def hinted(refusal: str) -> str:
    """What the server said, and what to do."""
    return next((f"{refusal}; {hint}" for code, hint in _HINTS.items() if refusal.startswith(code)), refusal)


def _without(words: Command, reply: str) -> str:
    """What the server said, without what it repeats of a login."""
    if words[0] != "AUTH":
        return reply
    said = reply.partition(", with args")[0]
    return said.replace(str(words[-1]), "***") if words[-1] else said


def _connected(node: Node, limit: Limit) -> socket.socket:
    """The first of the host's addresses that can be reached; each gets its share of the time. Raises `OSError`,
    `ValueError`."""
    failure: OSError = OSError(f"{node.host} has no address")
    found = places(node, limit)
    for tried, (family, kind, protocol, _, place) in enumerate(found):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max(limit.left() / (len(found) - tried), 0.001))
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
