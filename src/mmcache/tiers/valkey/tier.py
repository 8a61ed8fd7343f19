"""`ValkeyTier`: frames on one Valkey or Redis server, shared by machines. Each call is one round trip."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import CorruptFrameError, FormatVersionError, SettingsError, TierClosedError, TierError
from mmcache.model.event import Event, Failed, MissReason, Refused, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import PART_BYTES, Key
from mmcache.tiers.base import Deadline, Found, Held, TierStats
from mmcache.tiers.valkey.connection import Command, Connection, Refusal
from mmcache.tiers.valkey.record import LONGEST_HEAD, Record, head_bytes
from mmcache.tiers.valkey.watch import ClockWatch, asleep, this_machine

_KEY_CHARACTERS = 4 * PART_BYTES
"""Base64 of three parts."""
_PAGE = 512
_FOR_EVER = 10.0**9
"""Seconds; beyond, the server need not collect anything."""
_LIKELY_HEAD = 1024
_REFUSALS = {
    "OOM": RefuseReason.QUOTA,
    "READONLY": RefuseReason.READ_ONLY,
    "MISCONF": RefuseReason.DISK_FULL,
    "NOSPACE": RefuseReason.DISK_FULL,
}  # fmt: skip


def ignore(event: Event) -> None:
    """The default listener."""


class ValkeyTier:
    """`Tier` over one server: `Cache(lower=[ValkeyTier("127.0.0.1", 6379)])`. No cluster, no TLS yet.

    A server that is slow or gone costs one timeout a second: reads are missed with `tier-down`, puts are refused, and
    a drop raises `TierError`, so that the cache remembers what must not be read from here any more.

    Deadlines hold to the second whatever becomes of the server's clock; see `clocks` for how. In short: each frame
    carries its deadline in the own time of the machine that stored it. That machine needs no other clock. Another one
    translates it by a ledger on the server that all keep; where it cannot (nobody has followed the server's clock from
    then to now), the block is missed as `abstained`. The server's own expiry only collects garbage, `spare_seconds`
    after the deadline: a server whose clock is set forward by more than that loses blocks early. A failover to a
    replica with another clock is a step like any other.
    """

    name = "valkey"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 6379,
        *,
        prefix: str = "mmcache:",
        username: str | None = None,
        password: str | None = None,
        database: int = 0,
        timeout_seconds: float = 0.5,
        connections: int = 16,
        largest_bytes: int = 64 << 20,
        spare_seconds: float = 600.0,
        clock: Clock = SystemClock(),  # noqa: B008  (stateless)
        emit: Callable[[Event], None] = ignore,
        machine: bytes | None = None,
        asleep: Callable[[], float] = asleep,
    ) -> None:
        """Connects at first use.

        prefix: of every key, for an ACL. timeout_seconds: to connect, and between two bytes of an answer.
        largest_bytes: a larger block is refused, and not read. machine: 8 bytes for whose own time `clock` and `asleep`
        tell, where that is not this machine's. Raises `SettingsError`.
        """
        if min(timeout_seconds, connections, largest_bytes) <= 0 or spare_seconds < 0:
            raise SettingsError("timeouts, connections and sizes are more than 0, spare seconds 0 or more")
        self._prefix = prefix.encode()
        self._largest, self._spare, self._emit = largest_bytes, spare_seconds, emit
        self._monotonic = clock.monotonic
        self._connection = Connection(
            host, port, username=username, password=password, database=database, timeout_seconds=timeout_seconds,
            connections=connections, monotonic=clock.monotonic,
        )  # fmt: skip
        self._watch = ClockWatch(
            self._connection.ask, self._prefix + b"clock", clock, machine or this_machine(), asleep
        )  # fmt: skip
        self._closed = False

    # reading

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`. Payloads are the caller's own; they are not yet verified."""
        self._check_open()
        if not keys:
            return []
        try:
            raws = self._ask([("GETRANGE", self._named(key), 0, self._largest) for key in keys])
        except TierError as error:
            self._emit(Failed(self.name, str(error)))
            return [MissReason.TIER_DOWN] * len(keys)
        now = self._monotonic()
        return [self._found(key, raw, now) for key, raw in zip(keys, raws, strict=True)]

    def _ask(self, commands: list[Command]) -> list[Any]:
        """Ask, and look at the server's clock in the same round trip. Raises `TierError`."""
        sent = self._watch.own()
        clock, *replies = _split(self._connection.ask([*self._watch.commands(), *commands]))
        self._watch.note(clock, sent, self._watch.own())
        return replies

    def _found(self, key: Key, raw: bytes | Refusal, now: float) -> Found | MissReason:
        if isinstance(raw, Refusal):
            self._emit(Failed(self.name, f"the server refused to read: {raw}", key))
            return MissReason.DENIED if raw.startswith("NOPERM") else MissReason.CORRUPT
        if not raw:
            return MissReason.ABSENT
        try:
            if len(raw) > self._largest:
                raise CorruptFrameError(f"a stored value has more than {self._largest} bytes")
            record = Record.decode(raw)
            deadline: Deadline = None
            if record.until is not None:
                deadline = self._watch.local(record.machine, record.until)
                if deadline is None:
                    return MissReason.ABSTAINED
                if deadline <= now:
                    return MissReason.EXPIRED
            frame = Frame.parse(memoryview(raw)[record.length :])
            if frame.header.key != key:
                raise CorruptFrameError("another key's frame is stored here")
        except (CorruptFrameError, FormatVersionError) as error:
            self._emit(Failed(self.name, str(error), key))
            return MissReason.CORRUPT
        return Found(frame, deadline)

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`. May name a key twice; an end that cannot be told is minus infinity. Raises `TierError`."""
        self._check_open()
        for names in self._pages():
            commands: list[Command] = []
            for name in names:
                commands += [("GETRANGE", name, 0, _LIKELY_HEAD - 1), ("STRLEN", name)]
            replies = self._ask(commands)
            for name, raw, size in zip(names, replies[::2], replies[1::2], strict=True):
                held = self._held(name, raw, size)
                if held is not None:
                    yield held

    def _pages(self) -> Iterator[list[bytes]]:
        cursor = b"0"
        pattern = _literal(self._prefix) + b"*"
        while True:
            (reply,) = self._connection.ask([("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)])
            if isinstance(reply, Refusal):
                raise TierError(f"the server refused to list its keys: {reply}")
            try:
                cursor, found = str(int(reply[0])).encode(), list(reply[1])
            except (ValueError, TypeError, LookupError) as error:
                raise TierError(f"the server listed its keys as {reply!r:.40}") from error
            length = len(self._prefix) + _KEY_CHARACTERS
            yield [name for name in found if isinstance(name, bytes) and len(name) == length]
            if cursor == b"0":
                return

    def _held(self, name: bytes, raw: Any, size: Any) -> Held | None:
        if isinstance(raw, Refusal) or isinstance(size, Refusal) or not raw:
            return None
        try:
            key = Key.from_bytes(base64.urlsafe_b64decode(name[len(self._prefix) :]))
            if _LIKELY_HEAD < head_bytes(raw) <= LONGEST_HEAD:
                (raw,) = self._connection.ask([("GETRANGE", name, 0, LONGEST_HEAD)])
            record = Record.decode(raw)
        except (CorruptFrameError, FormatVersionError, binascii.Error, ValueError) as error:
            self._emit(Failed(self.name, f"an entry cannot be read: {error}"))
            return None
        deadline = None
        if record.until is not None:
            deadline = self._watch.local(record.machine, record.until)
            deadline = -math.inf if deadline is None else deadline
        return Held(key, size, deadline, record.created, *record.names)

    # writing

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._check_open()
        self._watch.own()
        refusals: list[tuple[RefuseReason, str] | None] = [None] * len(frames)
        commands: dict[int, Command] = {}
        for place, (frame, deadline) in enumerate(zip(frames, deadlines, strict=True)):
            command = self._set(frame, deadline)
            if isinstance(command, RefuseReason):
                refusals[place] = command, ""
            else:
                commands[place] = command
        if commands:
            for place, reply in zip(commands, self._store(list(commands.values())), strict=True):
                if isinstance(reply, Refusal | TierError):
                    code = str(reply).partition(" ")[0]
                    refusals[place] = _REFUSALS.get(code, RefuseReason.TIER_DOWN), str(reply)
        for frame, refusal in zip(frames, refusals, strict=True):
            if refusal is not None:
                self._emit(Refused(frame.key, self.name, *refusal))
        return [refusal and refusal[0] for refusal in refusals]

    def _set(self, frame: Frame, deadline: Deadline) -> Command | RefuseReason:
        head = Record.of(frame, self._watch.machine, self._watch.until(deadline)).encode()
        if head is None:
            return RefuseReason.UNSUPPORTED
        value = b"".join((head, frame.prefix(), frame.payload))
        if len(value) > self._largest:
            return RefuseReason.TOO_LARGE
        left = math.inf if deadline is None else deadline - self._monotonic()
        if left > _FOR_EVER:
            return ("SET", self._named(frame.key), value)
        return ("SET", self._named(frame.key), value, "PX", max(1, math.ceil((left + self._spare) * 1000)))

    def _store(self, commands: list[Command]) -> list[Any]:
        sent = self._watch.own()
        try:
            clock, *replies = _split(self._connection.ask([*self._watch.commands(), *commands]))
        except TierError as error:
            return [error] * len(commands)
        self._note(clock, sent)
        return replies

    def _note(self, clock: list[Any], sent: float) -> None:
        """What was stored is stored, whatever becomes of the look at the clock."""
        try:
            self._watch.note(clock, sent, self._watch.own())
        except TierError as error:
            self._emit(Failed(self.name, str(error)))

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`. Raises `TierError` when the server does not do it: a drop must not be lost."""
        self._check_open()
        names = [self._named(key) for key in keys]
        if not names:
            return 0
        (dropped,) = self._connection.ask([("UNLINK", *names)])
        if isinstance(dropped, Refusal):
            raise TierError(f"the server refused to drop keys: {dropped}")
        return int(dropped)

    def flush(self) -> None:
        """Nothing waits here: a put that returned is on the server."""
        self._check_open()

    # life

    def stats(self) -> TierStats:
        """See `Tier.stats`. Lists all keys of the prefix: seconds for millions. All zero while the server is down."""
        self._check_open()
        blocks = size = 0
        try:
            for names in self._pages():
                lengths = self._connection.ask([("STRLEN", name) for name in names]) if names else []
                held = [length for length in lengths if not isinstance(length, Refusal) and length]
                blocks, size = blocks + len(held), size + sum(held)
        except TierError as error:
            self._emit(Failed(self.name, str(error)))
            return TierStats(0, 0, None, {"down": 1})
        return TierStats(blocks, size, None, {})

    def close(self) -> None:
        """Close the connections. Blocks that were handed out stay valid."""
        if not self._closed:
            self._closed = True
            self._connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("the valkey tier was closed")

    def _named(self, key: Key) -> bytes:
        return self._prefix + base64.urlsafe_b64encode(key)


def _split(replies: list[Any]) -> list[Any]:
    """The two replies about the clock as one, then the rest."""
    return [replies[:2], *replies[2:]]


def _literal(prefix: bytes) -> bytes:
    """A prefix as a pattern that matches nothing else."""
    return b"".join(b"\\" + bytes([char]) if char in b"*?[]^\\" else bytes([char]) for char in prefix)
