"""`ClockWatch`: this machine's own time, and how it follows the server's clock through the ledger on the server."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import xxhash

from mmcache.model.clock import Clock
from mmcache.tiers.base import Deadline
from mmcache.tiers.valkey.clocks import Ledger, Reading, follow, translate
from mmcache.tiers.valkey.connection import Command, Refusal
from mmcache.tiers.valkey.record import MACHINE_BYTES

MAX_LEDGER_BYTES = 1 << 16
_VERSION_BYTES = 8
_VERSION_ENDS = _VERSION_BYTES - 1
_TRIES = 4
_SHARP = 0.01
"""Seconds: a reading this vague (large values came with it) is taken again by itself."""
_GLANCE = 1e-3
"""Seconds between two readings of clocks of this machine that should not have taken any."""
_SWAP = "if redis.call('GETRANGE',KEYS[1],0,7)==ARGV[1] then redis.call('SET',KEYS[1],ARGV[2]) return 1 end return 0"

Ask = Callable[[list[Command]], list[Any]]


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

    def __init__(self, ask: Ask, key: bytes, clock: Clock, machine: bytes, asleep: Callable[[], float]) -> None:
        self._ask, self._key, self._clock, self._asleep = ask, key, clock, asleep
        self.machine = machine
        self._slept = asleep()
        self._quickest = math.inf
        """Seconds of the quickest round trip so far."""
        self._state: tuple[bytes, Ledger, bool] = (b"", Ledger(), False)

    def own(self) -> float:
        """Seconds; looks how long the machine slept, which `until` and `local` then go by."""
        self._slept = self._asleep()
        return self._clock.monotonic() + self._slept

    def until(self, deadline: Deadline) -> Deadline:
        """A deadline (monotonic) in own time."""
        return None if deadline is None else deadline + self._slept

    def local(self, machine: bytes, until: float) -> float | None:
        """The monotonic deadline for one in `machine`'s own time; None when nobody can vouch for it."""
        _, ledger, trusted = self._state
        own = until if machine == self.machine else translate(ledger, self.machine, machine, until) if trusted else None
        return None if own is None else own - self._slept

    def commands(self) -> list[Command]:
        """What to ask in front of every round trip; `note` takes the replies."""
        return [("GETRANGE", self._key, 0, _VERSION_ENDS), ("TIME",)]

    def note(self, replies: list[Any], sent: float, received: float) -> None:
        """Learn from the replies to `commands`; further round trips only when something has changed.

        Raises `TierError`.
        """
        if received - sent > max(2 * _SHARP, 4 * self._quickest):
            sent = self.own()
            replies = self._ask(self.commands())
            received = self.own()
        self._quickest = min(self._quickest, received - sent)
        reading = _reading(replies[1], sent, received)
        version, ledger, _ = self._state
        if reading is not None and version and replies[0] == version:
            becomes, trusted = follow(ledger, self.machine, reading)
            if becomes is ledger:
                self._state = (version, ledger, trusted)
                return
        self._catch_up()

    def _catch_up(self) -> None:
        """Fetch the ledger and change it if need be."""
        version, ledger = b"", Ledger()
        for _ in range(_TRIES):
            sent = self.own()
            raw, told = self._ask([("GETRANGE", self._key, 0, MAX_LEDGER_BYTES), ("TIME",)])
            reading = _reading(told, sent, self.own())
            if reading is None or not isinstance(raw, bytes):
                break
            version, ledger = raw[:_VERSION_BYTES], Ledger.decode(raw[_VERSION_BYTES:])
            becomes, trusted = follow(ledger, self.machine, reading)
            if becomes is ledger:
                self._state = (version, ledger, trusted)
                return
            renewed = secrets.token_bytes(_VERSION_BYTES)
            (swapped,) = self._ask([("EVAL", _SWAP, 1, self._key, version, renewed + becomes.encode())])
            if swapped == 1:
                self._state = (renewed, becomes, trusted)
                return
        self._state = (version, ledger, False)


def _reading(told: Any, sent: float, received: float) -> Reading | None:
    if isinstance(told, Refusal):
        return None
    seconds, micros = told
    return Reading(sent, received, int(seconds) + int(micros) / 1e6)
