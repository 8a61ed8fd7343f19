"""`ClockWatch`: this machine's own time, and how it follows the server's clock through the ledger on the server."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import xxhash

from mmcache.model.clock import Clock
from mmcache.tiers.base import Deadline
from mmcache.tiers.valkey.clocks import Ledger, Reading, follow, translate
from mmcache.tiers.valkey.record import MACHINE_BYTES
from mmcache.tiers.valkey.scripts import LOOK, SWAP
from mmcache.tiers.valkey.words import Request

LOOK_SECONDS = 0.25
"""A call looks at the server's clock when the last look is so long ago: most calls are one command a block."""
OVERDUE_SECONDS = 1.0
"""A call does so after this long even where it asks nothing else of the node whose clock it is."""
TRUSTED_SECONDS = 60.0
"""Others' deadlines are not translated by a look that is longer ago: own times drift apart by up to `RATE`."""
MAX_LEDGER_BYTES = 1 << 16
_VERSION_BYTES = 8
_VERSION_ENDS = _VERSION_BYTES - 1
_TRIES = 4
_SHARP = 0.01
"""Seconds: a reading this vague (large values came with it, or another node's reply) is taken again by itself."""
_AGAIN = 0.02
"""Seconds after a look within which none is taken only because somebody's lead is not known."""
_GLANCE = 1e-3
"""Seconds between two readings of clocks of this machine that should not have taken any."""

_FIRST_FEW = 8
"""Requests of a batch of which one may go to the ledger's node anyway."""

Ask = Callable[[Sequence[Request]], list[Any]]
Near = Callable[[bytes], bool]


@cache
def this_machine() -> bytes:
    """8 bytes for the own time of this machine, until it reboots; containers with a time of their own differ.

    Where the system tells no boot it is this process alone.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return secrets.token_bytes(MACHINE_BYTES)
    with suppress(OSError):  # an older kernel: all share one time
        boot += os.fsencode(os.readlink("/proc/self/ns/time"))
    return xxhash.xxh3_64_digest(boot)


class _Sleep:
    """The clocks are read one after the other, so their difference is known to some microseconds: it is kept until it
    has changed by more, so that it moves no deadline."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        best, found = math.inf, self.seconds
        for _ in range(5):
            before = time.clock_gettime(time.CLOCK_MONOTONIC)
            with_sleep = time.clock_gettime(time.CLOCK_BOOTTIME)
            took = time.clock_gettime(time.CLOCK_MONOTONIC) - before
            if took < best:
                best, found = took, with_sleep - before - took / 2
            if best < _GLANCE:
                break
        if abs(found - self.seconds) > max(_GLANCE, best):
            self.seconds = found
        return self.seconds


asleep: Callable[[], float] = _Sleep() if hasattr(time, "CLOCK_BOOTTIME") else float
"""Seconds that this machine was suspended since it booted: the monotonic clock stood still, the world did not."""


class ClockWatch:
    """Own time is the monotonic clock plus what the machine slept. Threads may share it: its state is one tuple."""

    def __init__(
        self,
        ask: Ask,
        key: bytes,
        clock: Clock,
        machine: bytes,
        asleep: Callable[[], float],
        near: Near = lambda name: True,
    ) -> None:
        """key: of the ledger, which chooses the node whose clock is followed. near: whether that node has a name."""
        self._ask, self._key, self._clock, self._asleep, self._near = ask, key, clock, asleep, near
        self.machine = machine
        self._slept = asleep()
        self._quickest = math.inf
        """Seconds of the quickest round trip so far."""
        self._looked = -math.inf
        """When the last look began, whatever came of it; own time."""
        self._state: tuple[bytes, Ledger, float] = (b"", Ledger(), -math.inf)
        """What the ledger was, and until when it may be translated by; own time."""

    def own(self) -> float:
        """Seconds; looks how long the machine slept, which `until` and `local` then go by."""
        self._slept = self._asleep()
        return self._clock.monotonic() + self._slept

    def until(self, deadline: Deadline) -> Deadline:
        """A deadline (monotonic) in own time."""
        return None if deadline is None else deadline + self._slept

    def local(self, machine: bytes, until: float) -> float | None:
        """The monotonic deadline for one in `machine`'s own time; None when nobody can vouch for it."""
        own: float | None = until
        if machine != self.machine:
            _, ledger, trusted = self._state
            trusts = self._clock.monotonic() + self._slept < trusted
            own = translate(ledger, self.machine, machine, until) if trusts else None
        return None if own is None else own - self._slept

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        """The replies to `requests`; looks at the server's clock along with them when that is due."""
        sent = self.own()
        since = sent - self._looked
        if since < LOOK_SECONDS or (since < OVERDUE_SECONDS and not self._on_the_way(requests)):
            return self._ask(requests)
        self._looked = sent
        told, *replies = self._ask([self._look(_VERSION_ENDS), *requests])
        self._note(told, sent, self.own())
        return replies

    def _on_the_way(self, requests: Sequence[Request]) -> bool:
        return any(one.key is not None and self._near(one.key) for one in requests[:_FIRST_FEW])

    def look_again(self) -> bool:
        """Look now, because somebody's lead is not known, unless that was done a moment ago. Whether it was not."""
        sent = self.own()
        if sent - self._looked < _AGAIN:
            return False
        self.look()
        return True

    def look(self) -> None:
        """Look at the server's clock now."""
        self._looked = sent = self.own()
        (told,) = self._ask([self._look(_VERSION_ENDS)])
        self._note(told, sent, self.own())

    def _look(self, last: int) -> Request:
        return Request(self._key, LOOK.words((self._key,), (last,)))

    def _note(self, told: Any, sent: float, received: float) -> None:
        """Learn from the reply to a look; further round trips only when something has changed, or it was vague."""
        if _reading(told, sent, received) is None:
            return
        if received - sent > max(2 * _SHARP, 4 * self._quickest):
            sent = self.own()
            (told,) = self._ask([self._look(_VERSION_ENDS)])
            received = self.own()
        self._quickest = min(self._quickest, received - sent)
        found = _reading(told, sent, received)
        if found is None:
            return
        version, ledger, _ = self._state
        if version and found[0] == version:
            becomes, trusted = follow(ledger, self.machine, found[1])
            if becomes is ledger:
                self._state = (version, ledger, received + TRUSTED_SECONDS if trusted else -math.inf)
                return
        self._catch_up()

    def _catch_up(self) -> None:
        """Fetch the ledger and change it if need be."""
        version, ledger = b"", Ledger()
        for _ in range(_TRIES):
            sent = self.own()
            (told,) = self._ask([self._look(MAX_LEDGER_BYTES - 1)])
            received = self.own()
            found = _reading(told, sent, received)
            if found is None:
                break
            raw, reading = found
            version, ledger = raw[:_VERSION_BYTES], Ledger.decode(raw[_VERSION_BYTES:])
            becomes, trusted = follow(ledger, self.machine, reading)
            trust = received + TRUSTED_SECONDS if trusted else -math.inf
            if becomes is ledger:
                self._state = (version, ledger, trust)
                return
            renewed = secrets.token_bytes(_VERSION_BYTES)
            swap = SWAP.words((self._key,), (version, renewed + becomes.encode()))
            (swapped,) = self._ask([Request(self._key, swap)])
            if swapped == 1:
                self._state = (renewed, becomes, trust)
                return
        self._state = (version, ledger, -math.inf)


def _reading(told: Any, sent: float, received: float) -> tuple[bytes, Reading] | None:
    """What was read of the ledger, and the clock; None = the server did not tell."""
    try:
        raw, (seconds, micros) = told
        if isinstance(raw, bytes | memoryview):
            return bytes(raw), Reading(sent, received, int(seconds) + int(micros) / 1e6)
    except (TypeError, ValueError, OverflowError):
        pass
    return None
