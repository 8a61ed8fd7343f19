"""Who is being served, and is the client still there? A request that takes longer than a moment gets a watcher, which
cancels that request's own work, and nothing that others share, when its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from mmcache.server.accounts import Account

if TYPE_CHECKING:
    from mmcache.server.tenants import Seen

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MOMENT_SECONDS = 0.25
"""Answers from memory are long gone by then, and cost no watcher."""


class Flight(msgspec.Struct, eq=False):
    """One request under way."""

    receive: Receive
    task: asyncio.Task[Any] | None
    readable: bool = False
    """The body was read to its end: what comes next from the client is that it has gone."""
    gone: bool = False
    done: bool = False
    old: bool = False
    watcher: asyncio.Task[None] | None = None
    account: Account | None = None
    """Which it counts for until its end, where there is a limit."""
    seen: Seen | None = None
    """Whose it is, once that is known."""
    fault: str = ""
    """A word for what went wrong, for who traces it."""


class Watch:
    """All flights."""

    def __init__(self) -> None:
        self.flights: set[Flight] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, receive: Receive) -> Flight:
        """A request has come."""
        flight = Flight(receive, asyncio.current_task())
        self.flights.add(flight)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MOMENT_SECONDS, self._sweep)
        return flight

    def end(self, flight: Flight) -> None:
        """It is answered, or given up."""
        flight.done = True
        self.flights.discard(flight)
        if flight.account is not None:
            flight.account.flying -= 1
        if flight.watcher is not None:
            flight.watcher.cancel()

    def follow(self, flight: Flight) -> None:
        """Watch from now on; a stream has begun."""
        if flight.readable and flight.watcher is None and not flight.done and flight.task is not None:
            flight.watcher = asyncio.get_running_loop().create_task(_wait(flight))

    def _sweep(self) -> None:
        self._timer = None
        for flight in self.flights:
            if flight.old:
                self.follow(flight)
            flight.old = True
        if self.flights:
            self._timer = asyncio.get_running_loop().call_later(MOMENT_SECONDS, self._sweep)


async def _wait(flight: Flight) -> None:
    while (await flight.receive())["type"] != "http.disconnect":
        pass
    if not flight.done and flight.task is not None:
        flight.gone = True
        flight.task.cancel()
