"""Which tables somebody follows, and until when. What nobody follows must not be served by row: it would never go.

Whoever follows a database says so as long as it knows that it has missed nothing for a few seconds; it stands on the
server, and ends by the server's clock alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from mmcache.model.clock import Clock
from mmcache.model.errors import TierError
from mmcache.model.event import MissReason
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request, Script

SECONDS = 5.0
"""For so long one word of a follower counts."""
KNOWN_SECONDS = 1.0
_KEPT_MS = 86_400_000

_TELL = Script(
    "local t=redis.call('TIME') local until_ms=t[1]*1000+math.floor(t[2]/1000)+ARGV[1] "
    "for i=2,#ARGV,2 do redis.call('HSET',KEYS[1],ARGV[i],string.format('%.0f',until_ms)..' '..ARGV[i+1]) end "
    "return redis.call('PEXPIRE',KEYS[1]," + str(_KEPT_MS) + ")"
)
_READ = Script(
    "local t=redis.call('TIME') local now=t[1]*1000+math.floor(t[2]/1000) local out={} "
    "local all=redis.call('HGETALL',KEYS[1]) for i=1,#all,2 do local cut=string.find(all[i+1],' ') "
    "if tonumber(string.sub(all[i+1],1,cut-1))>now then "
    "out[#out+1]=all[i] out[#out+1]=string.sub(all[i+1],cut+1) end end return out"
)

Tables = Mapping[str, frozenset[str]]
"""What rows call a table → its groups of columns."""


def followed_key(prefix: str) -> bytes:
    """Beside the news, so that who reads those asks the same node."""
    return prefix.encode() + b"{news}:followed"


def tell_followed(client: Client, tables: Mapping[str, Collection[str]], seconds: float = SECONDS) -> None:
    """These tables, with these groups, are followed for so long. Raises `TierError`."""
    key, words = followed_key(client.address.prefix), list[str | bytes | int]()
    for table, groups in tables.items():
        words += [table, msgspec.json.encode(sorted(groups))]
    (reply,) = client.ask([Request(key, _TELL.words([key], [round(seconds * 1000), *words]))])
    if isinstance(reply, Down | Refusal):
        raise TierError(f"the caches were not told that tables are followed: {reply}")


class Followed:
    """What a process knows of it; asked for again every second."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._key = followed_key(client.address.prefix)
        self._known: tuple[float, Tables] = (float("-inf"), {})

    def tables(self) -> Tables | MissReason:
        """Those that somebody follows now; or why nobody can say."""
        now = self._clock.monotonic()
        until, tables = self._known
        if now < until:
            return tables
        (reply,) = self._client.ask([Request(self._key, _READ.words([self._key], []))])
        if isinstance(reply, Down | Refusal):
            return MissReason.DENIED if reply.startswith("NOPERM") else MissReason.TIER_DOWN
        tables = {
            bytes(table).decode(): frozenset(msgspec.json.decode(bytes(groups), type=list[str]))
            for table, groups in zip(reply[::2], reply[1::2], strict=True)
        }
        self._known = now + KNOWN_SECONDS, tables
        return tables
