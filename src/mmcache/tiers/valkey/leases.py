"""`SharedClaims`: single flight across hosts, by leases on the server that their holder keeps up while it computes.

A holder that dies is replaced within a lease; one that was paused notices, and its put is refused (see `fence`). A
server that is down stops nobody: every host computes for itself then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from mmcache import forks
from mmcache.model.event import Event, Failed, RefuseReason
from mmcache.model.key import Key
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.fence import FENCE_SECONDS, Tokens
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.scripts import ACQUIRE, RELEASE, RENEW
from mmcache.tiers.valkey.words import Request

_AT_ONCE = 1000
_LINGER_SECONDS = 10.0
"""A thread that has nothing to renew ends after so long."""


class SharedClaims:
    """`Claims` of all hosts that share a server and a prefix. Threads may share it.

    One thread renews all leases every third of `lease_seconds`, and gives back what was released; it starts when the
    first lease is taken, and not in a forked child, which holds none.
    """

    fork_order = 1

    def __init__(
        self,
        client: Client,
        names: Names,
        tokens: Tokens,
        lease_seconds: float,
        emit: Callable[[Event], None],
        *,
        heartbeat: bool = True,
    ) -> None:
        """heartbeat: whether a thread renews; else whoever made it calls `beat`."""
        self._client, self._names, self._tokens, self._emit = client, names, tokens, emit
        self._lease_ms = max(3, round(lease_seconds * 1000))
        self._heartbeat = heartbeat
        self._reset()
        forks.join(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._returned: list[tuple[Key, bytes]] = []
        self._closed = False

    # Claims

    def acquire(self, key: Key) -> bool:
        """Try to become the leader: one round trip. True also when the server does not say no, because it is down."""
        return self.acquire_all([key])[0]

    def acquire_all(self, keys: Sequence[Key]) -> list[bool]:
        """The same for many at once: one round trip a node. Each key once."""
        drawn = {key: self._tokens.draw() for key in keys if not self._tokens.held(key)}
        requests = []
        for key, token in drawn.items():
            head, lease, fence = self._names.block(key)
            words = ACQUIRE.words((head, lease, fence), (token, self._lease_ms, FENCE_SECONDS * 1000))
            requests.append(Request(head, words))
        won = set()
        for (key, token), reply in zip(drawn.items(), self._client.ask(requests), strict=True):
            if reply == 0:
                continue
            if reply != 1 and not isinstance(reply, Down):  # of nodes that are down the client tells, once
                self._emit(Failed("leases", f"the shared tier grants no lease, this host computes alone: {reply}", key))
            self._tokens.hold(key, token if reply == 1 else RefuseReason.TIER_DOWN)
            won.add(key)
        if won:
            self._wake()
        return [key in won for key in keys]

    def release(self, key: Key) -> None:
        """Give the claim back; never blocks. Does nothing where a put is on its way: that one ends the lease."""
        token = self._tokens.release(key)
        if token is not None:
            self._returned.append((key, token))
            self._wake()

    # the heartbeat

    def beat(self) -> None:
        """Give back what was released, renew the rest, and notice what was overtaken."""
        returned, self._returned = self._returned, []
        for start in range(0, len(returned), _AT_ONCE):
            self._client.ask(
                [
                    Request((block := self._names.block(key))[0], RELEASE.words(block, (token,)))
                    for key, token in returned[start : start + _AT_ONCE]
                ]
            )  # what does not arrive ends by itself
        due = self._tokens.due()
        for start in range(0, len(due), _AT_ONCE):
            self._renew(due[start : start + _AT_ONCE])

    def _renew(self, due: Sequence[tuple[Key, bytes]]) -> None:
        requests = []
        for key, token in due:
            block = self._names.block(key)
            words = RENEW.words(block, (token, self._lease_ms, FENCE_SECONDS * 1000))
            requests.append(Request(block[0], words))
        for (key, token), reply in zip(due, self._client.ask(requests), strict=True):
            if reply == 0:
                self._tokens.overtaken(key, token)
            elif isinstance(reply, Refusal) and not isinstance(reply, Down):
                self._emit(Failed("leases", f"a lease was not renewed: {reply}", key))

    def _wake(self) -> None:
        if not self._heartbeat:
            return
        with self._changed:
            if self._closed:
                return
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="mmcache-leases", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending: leases end by themselves
                    return
                self._thread = thread
            elif self._returned:
                self._changed.notify_all()

    def _run(self) -> None:
        changed, idle = self._changed, 0.0
        pause = self._lease_ms / 3000
        while True:
            with changed:
                if changed is not self._changed:
                    return
                if self._closed or idle > _LINGER_SECONDS:
                    self._thread = None
                    return
                if not self._returned:
                    changed.wait(pause)
            idle = 0.0 if self._returned or len(self._tokens) else idle + pause
            try:
                self.beat()
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on: without it leases end
                self._emit(Failed("leases", f"leases were not renewed: {error!r}"))

    def close(self) -> None:
        """Renew no more; what is still held ends by itself."""
        with self._changed:
            self._closed = True
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._returned:
            self.beat()

    # forks

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """The parent's leases are not the child's, nor is its thread."""
        if child:
            closed = self._closed
            self._tokens.forget()
            self._reset()
            self._closed = closed
