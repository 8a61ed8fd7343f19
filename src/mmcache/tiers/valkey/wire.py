"""One connection: commands out, replies in. Several are served side by side, so that no node waits for another."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.limit import Limit
from mmcache.tiers.valkey.replies import Replies
from mmcache.tiers.valkey.stream import Stream
from mmcache.tiers.valkey.words import Buffer, Command, encode

_LIGHT = 64 << 10
"""Bytes that a socket takes at once: so much may be sent before the first reply is read."""


class Wire:
    """Whoever holds it has it alone. After a `fault` it must be closed: what comes on it answers nobody."""

    def __init__(self, stream: Stream, largest: int) -> None:
        self._stream = stream
        self._replies = Replies(largest)
        self._out: list[Buffer] = []
        self._count = 0
        self.fault: str | None = None
        """Why it can be used no more."""
        self.late = False
        """Whether the fault is that time was up."""
        self.lost = False
        """Whether the fault is that the other side closed."""
        self.used = False
        """Whether it has answered before."""

    def begin(self, commands: Sequence[Command]) -> None:
        """What to ask next."""
        self._out = encode(commands)
        self._count = len(commands)
        self._replies.expect(self._count)

    @property
    def replies(self) -> list[Any]:
        """To what was begun, as far as they came."""
        return self._replies.done

    def settle(self, limit: Limit) -> None:
        """Send and receive all, or end with a `fault`."""
        if self._count > 1 and sum(map(len, self._out)) > _LIGHT:
            settle_all([self], limit)
            return
        try:
            while self._out and not self._push(limit, wait=True):
                pass
            while not self._pull(limit, wait=True):
                pass
        except (OSError, TierError) as error:
            self._failed(error)
        else:
            self.used = True

    def _push(self, limit: Limit, *, wait: bool) -> bool:
        """Send. Whether all is out."""
        if wait:
            self._stream.patience(limit.left())
        out = self._out
        sent = self._stream.send(out, wait)
        if not sent:
            return False
        limit.moved += sent
        if len(out) == 1 and sent == len(out[0]):
            self._out = []
            return True
        done = 0
        while done < len(out) and sent >= len(out[done]):
            sent -= len(out[done])
            done += 1
        self._out = out[done:]
        if sent:
            self._out[0] = memoryview(self._out[0])[sent:]
        return not self._out

    def _pull(self, limit: Limit, *, wait: bool) -> bool:
        """Receive. Whether all replies are here. Raises `TierError`, `OSError`."""
        if wait:
            self._stream.patience(limit.left())
        room = self._replies.room
        if room is None:
            data = self._stream.receive(wait)
            if data:
                limit.moved += len(data)
                return self._replies.feed(data)
            closed = data is not None
        else:
            count = self._stream.receive_into(room, wait)
            if count:
                limit.moved += count
                return self._replies.filled(count)
            closed = count is not None
        if closed:
            raise ConnectionResetError("it closed the connection")
        return False

    def start(self, limit: Limit) -> bool:
        """Send what there is room for. Whether it is over: there is a `fault`."""
        return self.advance(select.POLLOUT, limit)

    def advance(self, events: int, limit: Limit) -> bool:
        """Do what can be done without a wait. Whether it is over: all replies are here, or there is a `fault`."""
        try:
            if self._out and events & (select.POLLOUT | select.POLLERR):
                self._push(limit, wait=False)
            if events & ~select.POLLOUT:
                while not self._pull(limit, wait=False):
                    if not self._stream.pending():
                        return False
                if self._out:
                    raise TierError("it answers before it was asked")
                self.used = True
                return True
        except (OSError, TierError) as error:
            self._failed(error)
            return True
        return False

    @property
    def awaits(self) -> int:
        """For which events of `poll`."""
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    @property
    def fileno(self) -> int:
        """For `poll`."""
        return self._stream.fileno

    def expire(self) -> None:
        """Time is up."""
        self._failed(TimeoutError())

    def _failed(self, error: Exception) -> None:
        self.late = isinstance(error, TimeoutError)
        self.lost = isinstance(error, ConnectionError)
        if isinstance(error, TierError):
            self._replies.expect(0)  # nobody knows since when it has been talking nonsense
        self.fault = "it does not answer in time" if self.late else str(error)
        self._stream.close()

    @property
    def sound(self) -> bool:
        """Whether it may be asked: nothing has come unasked, and it is not closed."""
        return self.fault is None and self._stream.quiet()

    def close(self) -> None:
        """Also ends the wait of another thread, with a fault."""
        self.fault = self.fault or "it was closed"
        self._stream.close()

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        self._stream.forget()


def settle_all(wires: Sequence[Wire], limit: Limit) -> None:
    """Serve several side by side until each has all replies or a `fault`. All are written to before any is read."""
    waiting: dict[int, Wire] = {}
    poll = select.poll()
    for wire in wires:
        if not wire.start(limit):
            waiting[wire.fileno] = wire
            poll.register(wire.fileno, wire.awaits)
    while waiting:
        left = limit.left()
        ready = poll.poll(max(0.0, left) * 1000)
        for fileno, events in ready:
            wire = waiting[fileno]
            before = wire.awaits
            if wire.advance(events, limit):
                poll.unregister(fileno)
                del waiting[fileno]
            elif wire.awaits != before:
                poll.modify(fileno, wire.awaits)
        if left <= 0 or not ready:  # what was here already has been read
            break
    for wire in waiting.values():
        wire.expire()
