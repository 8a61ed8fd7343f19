"""`Client`: asks a Valkey or Redis server, a cluster, or a master that sentinels know; in batches, in a given time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mmcache import forks
from mmcache.model.clock import Clock
from mmcache.model.errors import TierClosedError, TierError
from mmcache.model.event import Event, Failed
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.call import Call
from mmcache.tiers.valkey.dial import Dialer, hinted
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.listener import Listener
from mmcache.tiers.valkey.node import Peer
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.routes import OneServer, Peers, Routes
from mmcache.tiers.valkey.sentinel import Sentinels
from mmcache.tiers.valkey.topology import Cluster
from mmcache.tiers.valkey.trip import Batch, travel
from mmcache.tiers.valkey.words import Command, Request, Script, in_full

__all__ = ["Client", "Command", "Down", "Listener", "Node", "Refusal", "Request", "Script", "ignore"]

_ROUTES: dict[str, type[Routes]] = {"standalone": OneServer, "cluster": Cluster, "sentinel": Sentinels}
_COUNTED = ("requests", "moved", "asked", "waits", "timeouts", "lost")


def ignore(event: Event) -> None:
    """The default listener."""


class Client:
    """Threads share it; a forked child opens its own connections. It connects at first use.

    Replies are `bytes` (status lines too), `int`, None, lists of these; strings of 16 KiB or more are read-only
    `memoryview`s. In the place of a reply stands a `Refusal` where the server said no, a `Down` where nobody answered.
    """

    fork_order = 6

    def __init__(
        self,
        settings: SharedSettings,
        *,
        clock: Clock,
        emit: Callable[[Event], None] = ignore,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`emit` gets a `Failed` whenever a node begins to rest. Raises `SettingsError`."""
        self.address = Address.parse(settings)
        self._settings, self._emit, self._sleep = settings, emit, sleep
        self._monotonic = clock.monotonic
        peers = Peers(settings, Dialer(settings, self.address), clock.monotonic)
        self._routes = _ROUTES[self.address.mode](self.address, peers, settings.timeout_seconds)
        self._lock = forks.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        self._closed = False
        forks.join(self)

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        """Replies, in order: one round trip a node, the nodes side by side. A server's fault raises nothing.

        Takes at most `timeout_seconds`, and what large values need at 16 MiB a second. Redirections, and what passes
        (a slot that moves, a server that loads), are followed and waited for within that. A command may be done twice.
        """
        self._check_open()
        if not requests:
            return []
        with self._lock:
            self._counts["requests"] += len(requests)
        limit = Limit(self._monotonic, self._settings.timeout_seconds)
        return Call(requests, self._routes, limit, self._report, self._settings.replica_reads).run(self._sleep)

    def ask_node(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Replies of one node, whatever it is: for SCAN, WAIT, INFO. All on one connection; nothing is followed."""
        self._check_open()
        if not commands:
            return []
        limit = Limit(self._monotonic, self._settings.timeout_seconds)
        batch = Batch(self._routes.peer(node), commands)
        travel([batch], limit)
        if any(isinstance(reply, Refusal) and reply.startswith("NOSCRIPT") for reply in batch.replies):
            batch = Batch(batch.peer, [in_full(words) or words for words in commands])
            travel([batch], limit)
        replies: list[Any] = list(batch.replies)
        if batch.fault is not None:
            if not batch.unasked:
                self._report("timeouts" if batch.late else "lost", batch.peer)
                self._report("failed", batch.peer, batch.fault)
            self._routes.look.soon()
            replies += [Down(f"{node}: {batch.fault}")] * (len(commands) - len(replies))
        elif batch.peer.breaker.open:
            self._report("served", batch.peer)
        return [Down(hinted(reply)) if is_no_entry(reply) else reply for reply in replies]

    def primaries(self) -> list[Node]:
        """All nodes that hold keys. Raises `TierError` when no node says who they are."""
        self._check_open()
        return self._routes.primaries(Limit(self._monotonic, self._settings.timeout_seconds))

    def node_of(self, key: bytes) -> Node | None:
        """The primary that holds `key`, as far as is known; None when nobody says."""
        try:
            limit = Limit(self._monotonic, self._settings.timeout_seconds)
            return self._routes.find(key, False, limit).node
        except TierError:
            return None

    def listen(self, key: bytes) -> Listener:
        """A connection of its own to the primary that holds `key`, for commands that wait on the server."""
        self._check_open()
        return Listener(self._routes, key, self._monotonic, self._report)

    def status(self) -> dict[str, int | float | str]:
        """Gauges and counts since the start."""
        peers = self._routes.peers.all()
        resting = [peer for peer in peers if peer.breaker.open]
        return {
            "mode": self._routes.mode,
            "nodes": len({peer.node for peer in peers}),
            "breakers_open": len(resting),
            "resting": ", ".join(str(peer.node) for peer in resting),
            "connections": sum(peer.connections for peer in peers),
            "opened": sum(peer.opened for peer in peers),
            "looks": self._routes.look.count,
            **self._counts,
        }

    def close(self) -> None:
        """Close all connections. Idempotent; later calls raise `TierClosedError`."""
        self._closed = True
        self._routes.peers.close()

    def before_fork(self) -> None:
        """See `Forkable`."""

    def after_fork(self, child: bool) -> None:
        """See `Forkable`."""
        if child:
            self._routes.look.renew()
            for peer in self._routes.peers.all():
                peer.renew()

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("the shared tier was closed; open a new cache")

    def _report(self, what: str, peer: Peer, why: str = "") -> None:
        """What a call, or a listener, has seen of a node."""
        if what == "served":
            peer.breaker.served()
        elif what == "failed":
            if peer.breaker.failed(self._monotonic(), why):
                self._emit(Failed("valkey", f"{peer.node} is left alone for a while: {why}"))
        else:
            with self._lock:
                self._counts[what] += 1


def is_no_entry(reply: object) -> bool:
    """Whether the server did not let us in."""
    return isinstance(reply, Refusal) and reply.startswith(("NOAUTH", "WRONGPASS", "DENIED"))
