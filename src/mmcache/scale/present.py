"""The nodes that a step is done with: connections that last as long as the step, to those that were looked at."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access, Contact
from mmcache.scale.chorus import Chorus
from mmcache.scale.observed import Member, Observed
from mmcache.scale.talk import Command
from mmcache.scale.views import View, read_view

Cancelled = Callable[[], bool]
_PAUSE_SECONDS = 0.05


class Present:
    """Of one step. Every method raises `ScaleError`; use it in a `with`."""

    def __init__(self, seen: Observed, access: Access) -> None:
        self.seen, self.access = seen, access
        self._open = ExitStack()
        self._contacts: dict[str, Contact] = {}
        self._choruses: dict[str, Chorus] = {}

    def member(self, name: str) -> Member:
        """By its name."""
        for member in self.seen.members:
            if member.name == name:
                return member
        raise ScaleError(f"there is no member {name}")

    def identity(self, name: str) -> str:
        """Its id, as it was seen."""
        if name not in self.seen.nodes:
            raise ScaleError(f"{name} did not answer: {self.seen.silent.get(name, 'it is not there')}")
        return self.seen.nodes[name].id

    def contact(self, name: str) -> Contact:
        """Who is there is who was seen there: another process at the same address is not talked to."""
        if name not in self._contacts:
            member, expected = self.member(name), self.identity(name)
            made = self._open.enter_context(self.access.to(member.host, member.port))
            told = made.ask("CLUSTER", "MYID")
            if told != expected.encode():
                raise ScaleError(f"{name} is another node than when it was looked at; it will be looked at again")
            self._contacts[name] = made
        return self._contacts[name]

    def chorus(self, name: str) -> Chorus:
        """For many commands that change whose a slot is."""
        if name not in self._choruses:
            member, waits = self.member(name), self.seen.nodes[name].version.startswith("valkey")
            made = Chorus(self.contact(name), self.access, member.host, member.port, waits=waits)
            self._open.callback(made.close)
            self._choruses[name] = made
        return self._choruses[name]

    def view(self, name: str) -> View:
        """The cluster as it sees it now."""
        return read_view(self.contact(name).ask("CLUSTER", "NODES"))

    def named(self, id_: str) -> str | None:
        """The member that has this id."""
        return next((name for name, node in self.seen.nodes.items() if node.id == id_), None)

    def tell_others(self, but: Iterable[str], commands: list[Command]) -> None:
        """Tell all other primaries what they would hear by gossip, a little later; who fails to listen will."""
        done = set(but)
        for name, node in self.seen.nodes.items():
            if name not in done and not node.primary:
                try:
                    self.contact(name)
                    self.chorus(name).tell([[command] for command in commands])
                except ScaleError:
                    self._forget(name)

    def patiently(self, met: Callable[[], Any], cancelled: Cancelled, seconds: float | None = None) -> bool:
        """Wait until it is true, for as long as an answer may take; whether it is."""
        end = time.monotonic() + (self.access.timeout_seconds if seconds is None else seconds)
        while not (found := bool(met())) and time.monotonic() < end and not cancelled():
            time.sleep(_PAUSE_SECONDS)
        return found

    def _forget(self, name: str) -> None:
        self._choruses.pop(name, None)
        if (broken := self._contacts.pop(name, None)) is not None:
            broken.close()

    def __enter__(self) -> Present:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def address_of(member: Member) -> str:
    """Its IP: what CLUSTER MEET wants to be told. Raises `ScaleError`."""
    try:
        found = socket.getaddrinfo(member.host, member.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ScaleError(f"{member.name}: nobody knows the address of {member.host}: {error}") from error
    return str(found[0][4][0])
