"""`Feed`: the news that all processes of a prefix read: which keys were invalidated, which sources changed.

One stream of bounded length on the server. Each entry names the one before it, so that a reader knows whether it has
missed any: trimmed while it was away, lost by a failover, or the whole stream gone. No counter could tell that.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmcache.model.errors import TierError
from mmcache.model.key import Key
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request, Script

LENGTH = 10_000
"""About so many entries are kept; who has missed more forgets everything."""
AT_ONCE = 256
"""Keys or sources in one entry."""
READ_AT_ONCE = 256
"""Entries."""
_NAME_BYTES = 8
_KEY_BYTES = 48
_SOURCE_BYTES = 16

_TELL = Script(
    "local last=redis.call('XREVRANGE',KEYS[1],'+','-','COUNT',1) local before='' "
    "if last[1] then before=last[1][2][2] end "
    "return redis.call('XADD',KEYS[1],'MAXLEN','~',ARGV[1],'*',"
    "'n',ARGV[2],'p',before..ARGV[7],'o',ARGV[3],'k',ARGV[4],'s',ARGV[5],'a',ARGV[6])"
)
_LAST = (
    "local last=redis.call('XREVRANGE',KEYS[1],'+','-','COUNT',1) if last[1] then return last end "
    "redis.call('XADD',KEYS[1],'*','n',ARGV[1],'p','','o','','k','','s','','a','') "
    "return redis.call('XREVRANGE',KEYS[1],'+','-','COUNT',1)"
)
"""A stream is begun by its first reader: of one that is empty nobody could tell whether it had entries before."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader has read: the id of an entry, and its name."""

    id: bytes = b"0-0"
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class News:
    """One entry."""

    place: Place
    before: bytes
    """The name of the entry before it."""
    origin: bytes
    """Who told; empty for the consumer of database changes."""
    keys: tuple[Key, ...]
    sources: tuple[bytes, ...]
    """Of rows; see `rows`."""
    answers: tuple[bytes, ...]
    """Sources that answers rest on; see `semantic.sources`."""


class Feed:
    """Tells the news, and parses them."""

    def __init__(self, client: Client, origin: bytes) -> None:
        self._client, self.origin = client, origin
        self.key = client.address.prefix.encode() + b"{news}"

    def tell(self, *, keys: Sequence[Key] = (), sources: Sequence[bytes] = (), answers: Sequence[bytes] = ()) -> None:
        """Append entries. Raises `TierError` when the server did not take all; telling again is harmless."""
        parts = (keys, sources, answers)
        for start in range(0, max(map(len, parts)), AT_ONCE):
            self._append([b"".join(part[start : start + AT_ONCE]) for part in parts])

    def tell_of_a_gap(self) -> None:
        """Make every reader believe that it has missed some. Raises `TierError`."""
        self._append([b"", b"", b""], break_off=b"!")

    def _append(self, parts: Sequence[bytes], break_off: bytes = b"") -> None:
        arguments: list[int | bytes] = [LENGTH, secrets.token_bytes(_NAME_BYTES), self.origin, *parts, break_off]
        (reply,) = self._client.ask([Request(self.key, _TELL.words([self.key], arguments))])
        if isinstance(reply, Refusal | Down):
            raise TierError(f"other hosts were not told of a change: {reply}")

    @staticmethod
    def last(reply: Any) -> Place:
        """The place of the last entry, from the reply to `last_command`. Raises `TierError`."""
        try:
            ((number, fields),) = reply
            return Place(bytes(number), bytes(fields[1]))  # the name comes first, whatever else there is
        except (TypeError, ValueError, LookupError) as error:
            raise TierError("the news have no last entry: is the server writable?") from error

    def last_command(self) -> tuple[str | bytes | int, ...]:
        """What to ask for the last entry."""
        return ("EVAL", _LAST, 1, self.key, secrets.token_bytes(_NAME_BYTES))

    def read_command(self, place: Place, block_ms: int | None) -> tuple[str | bytes | int, ...]:
        """What to ask for the entries after `place`; the server waits for one for so long, None = not at all."""
        wait = () if block_ms is None else ("BLOCK", block_ms)
        return ("XREAD", "COUNT", READ_AT_ONCE, *wait, "STREAMS", self.key, place.id)

    @staticmethod
    def entries(reply: Any) -> list[News] | None:
        """The entries in the reply to `read_command`; None = one is not of ours, or of a newer version. Raises
        `TierError`."""
        if not reply:
            return []
        try:
            ((_, entries),) = reply
        except (TypeError, ValueError) as error:
            raise TierError(f"the news cannot be read: {reply!r:.60}") from error
        return _entries(entries)


def _entries(entries: Any) -> list[News] | None:
    found = []
    try:
        for number, fields in entries or ():
            named = {bytes(name): bytes(value) for name, value in zip(fields[::2], fields[1::2], strict=True)}
            keys = tuple(Key.from_bytes(part) for part in _cut(named[b"k"], _KEY_BYTES))
            sources, answers = (tuple(_cut(named[name], _SOURCE_BYTES)) for name in (b"s", b"a"))
            found.append(News(Place(bytes(number), named[b"n"]), named[b"p"], named[b"o"], keys, sources, answers))
    except (TypeError, ValueError, LookupError):
        return None
    return found


def _cut(joined: bytes, size: int) -> list[bytes]:
    if len(joined) % size:
        raise ValueError(f"{len(joined)} bytes are no row of {size}")
    return [joined[start : start + size] for start in range(0, len(joined), size)]
