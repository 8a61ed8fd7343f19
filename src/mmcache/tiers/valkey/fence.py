"""Fencing tokens as one process holds them: which puts must prove that nothing has overtaken them. No I/O in here.

A token is drawn when a process becomes the leader of a key for all hosts, and the server keeps it for as long as the
computation is not outdated (see `scripts`). What the leader then puts is stored only if the server still has the token
(M. Kleppmann, "How to do distributed locking", 2016): a leader that was paused and wakes late overwrites nothing.

A put without a token is somebody's word, such as `Cache.put`: it seizes one, which outdates what is being computed. One
of a leader that could not ask the server when it began (so nobody knows what happened since) is refused as `tier-down`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from mmcache.forks import Lock
from mmcache.model.event import RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key

TOKEN_BYTES = 16
FENCE_SECONDS = 3600
"""What a token is good for after its lease has ended, if nobody overtook it meanwhile."""
UNCONDITIONAL = b""
"""The put seizes one for itself."""
MOST_LEFT_BEHIND = 65_536
"""Leases that are kept up for puts on their way; beyond, the oldest are left to end."""

Token = bytes | RefuseReason
"""Or why there is none that a put could go by."""


@dataclass(frozen=True, slots=True)
class Fenced(Frame):
    """A frame that carries the token of its computation, on its way to a tier that writes later."""

    token: Token


@dataclass(slots=True)
class _Hold:
    """What this process holds of one key."""

    token: Token
    """`tier-down` = blind: the server could not be asked for one. `invalidated` = it was overtaken, or is spent."""
    coming: bool = False
    """A fenced frame is on its way: its put ends the lease, not the release."""
    released: bool = False


class Tokens:
    """The tokens of one tier. Threads may share it; a forked child has none."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holds: dict[Key, _Hold] = {}
        self.lost = 0
        """Leases that were overtaken while they were held."""
        self.blind = 0
        """Computations that began without a token, since the server did not answer."""

    def __len__(self) -> int:
        return len(self._holds)

    @staticmethod
    def draw() -> bytes:
        """A token that nobody has had."""
        return secrets.token_hex(TOKEN_BYTES // 2).encode()

    def held(self, key: Key) -> bool:
        """Whether a computation of this process is at it."""
        hold = self._holds.get(key)
        return hold is not None and not hold.released

    def hold(self, key: Key, token: Token) -> None:
        """This process leads `key` from now on."""
        with self._lock:
            self._holds[key] = _Hold(token)
            self.blind += isinstance(token, RefuseReason)

    def mark(self, frame: Frame) -> Frame:
        """The frame with its token, for a put that comes later; so it never takes that of a later computation."""
        token: Token = UNCONDITIONAL
        with self._lock:
            hold = self._holds.get(frame.key) if self._holds else None
            if hold is not None and not hold.released:
                hold.coming, token = True, hold.token
        return Fenced(frame.header, frame.payload, frame.checksum, token)

    def of(self, frame: Frame) -> Token:
        """The token to put `frame` with (`UNCONDITIONAL` = seize one), or why it must not be put."""
        if isinstance(frame, Fenced):
            return frame.token
        hold = self._holds.get(frame.key) if self._holds else None
        return UNCONDITIONAL if hold is None or hold.released else hold.token

    def settled(self, key: Key, token: bytes) -> None:
        """A put of `key` has gone out, whatever became of it: the lease of that token is over, and it is spent."""
        if self._holds:
            with self._lock:
                hold = self._holds.get(key)
                if hold is None:
                    return
                if hold.released:
                    del self._holds[key]
                elif hold.token == token:
                    hold.token = RefuseReason.INVALIDATED

    def release(self, key: Key) -> bytes | None:
        """The computation is over: the token to give back to the server; None = there is none to give back now."""
        with self._lock:
            hold = self._holds.get(key)
            if hold is None or hold.released:
                return None
            if isinstance(hold.token, bytes) and hold.coming:
                hold.released = True
                self._holds[key] = self._holds.pop(key)  # the oldest first
                self._bound()
                return None
            del self._holds[key]
            return hold.token if isinstance(hold.token, bytes) else None

    def _bound(self) -> None:
        if len(self._holds) > MOST_LEFT_BEHIND:
            for key in [key for key, hold in self._holds.items() if hold.released][: MOST_LEFT_BEHIND // 8]:
                del self._holds[key]

    def outdate(self, keys: Iterable[Key]) -> None:
        """These are being dropped: nothing that began before may be stored, even if the server does not hear of it."""
        if self._holds:
            with self._lock:
                for key in keys:
                    hold = self._holds.get(key)
                    if hold is None:
                        continue
                    if hold.released:
                        del self._holds[key]
                    else:
                        hold.token = RefuseReason.INVALIDATED

    def due(self) -> list[tuple[Key, bytes]]:
        """All that must be renewed."""
        with self._lock:
            return [(key, hold.token) for key, hold in self._holds.items() if isinstance(hold.token, bytes)]

    def overtaken(self, key: Key, token: bytes) -> None:
        """The server has another token, or none."""
        with self._lock:
            hold = self._holds.get(key)
            if hold is not None and hold.token == token:
                self.lost += 1
                if hold.released:
                    del self._holds[key]
                else:
                    hold.token = RefuseReason.INVALIDATED

    def forget(self) -> None:
        """None is this process's: it was forked."""
        self._holds.clear()
