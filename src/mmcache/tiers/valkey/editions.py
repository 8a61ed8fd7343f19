"""Editions: which state of a database row a block was computed from; see `rows` for what a source is.

An edition is text: a version (20 decimal digits, the position of the change in the database's log) and 16 random hex
digits, so that none ever comes back: not after it was evicted, nor when a failover lost it. A source that nobody has
asked for has none; the first who asks makes one. So the server holds editions only of rows that are in use, and a lost
one costs a miss, never a stale hit.
"""

from __future__ import annotations

import base64
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmcache.forks import Lock
from mmcache.model.clock import Clock
from mmcache.model.errors import TierError
from mmcache.model.event import MissReason
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request, Script
from mmcache.tiers.valkey.feed import Feed
from mmcache.tiers.valkey.followed import SECONDS, tell_followed

ANEW = -1
"""The version of a change that nobody can place in the database's log: the edition moves whatever it was."""
KEPT_SECONDS = 7 * 86_400
"""An edition that nobody fetched for so long is forgotten by the server."""
KNOWN_SECONDS = 60.0
"""A process asks again so long after it fetched one."""
CAPACITY = 100_000
"""Editions that a process remembers."""
_DIGITS = 20
_AT_ONCE = 1000

_FETCH = Script(
    "local e=redis.call('GET',KEYS[1]) "
    "if e then redis.call('EXPIRE',KEYS[1],ARGV[2]) return e end "
    "redis.call('SET',KEYS[1],ARGV[1],'EX',ARGV[2]) return ARGV[1]"
)
_MOVE = Script(
    "local e=redis.call('GET',KEYS[1]) if not e then return 0 end "
    "local version=ARGV[1] if version=='' then version=string.sub(e,1,20) "
    "elseif string.sub(e,1,20)>=version then return 0 end "
    "redis.call('SET',KEYS[1],version..'.'..ARGV[2],'EX',ARGV[3]) return 1"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A source that changed. version: where in the database's log, below 10**20; or `ANEW`."""

    source: bytes
    version: int


def edition_key(prefix: str, source: bytes) -> bytes:
    """The server's key of a source's edition."""
    return prefix.encode() + b"{e:" + base64.urlsafe_b64encode(source) + b"}"


class Editions:
    """What one process knows of editions. It may go by that while it hears the news (`heard`), and no longer."""

    def __init__(self, client: Client, heard: Callable[[], bool], clock: Clock) -> None:
        self._client, self._prefix, self._heard, self._clock = client, client.address.prefix, heard, clock
        self._lock = Lock()
        self._known: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        """Editions, and until when they are gone by: hosts agree again soon after the server has lost one."""
        self._turn = 0
        """Counts the news, so that what was fetched before some is not remembered after it."""

    def of(self, sources: Sequence[bytes]) -> list[bytes] | MissReason:
        """The editions of `sources`, in order; or why nobody can say: then nothing that rests on them may be served."""
        if not self._heard():
            return MissReason.STALE_LEASE
        now = self._clock.monotonic()
        with self._lock:
            turn, found = self._turn, {}
            for source in sources:
                edition, until = self._known.get(source, (b"", now))
                if until > now:
                    found[source] = edition
                    self._known.move_to_end(source)
        missing = [source for source in dict.fromkeys(sources) if source not in found]
        if missing:
            fetched = self._fetch(missing)
            if isinstance(fetched, MissReason):
                return fetched
            found |= fetched
            with self._lock:
                if self._turn == turn:
                    self._known |= {source: (edition, now + KNOWN_SECONDS) for source, edition in fetched.items()}
                    while len(self._known) > CAPACITY:
                        self._known.popitem(last=False)
        return [found[source] for source in sources]

    def _fetch(self, sources: Sequence[bytes]) -> dict[bytes, bytes] | MissReason:
        requests = []
        for source in sources:
            key, fresh = edition_key(self._prefix, source), b"%020d." % 0 + secrets.token_hex(8).encode()
            requests.append(Request(key, _FETCH.words([key], [fresh, KEPT_SECONDS])))
        found = {}
        for source, reply in zip(sources, self._client.ask(requests), strict=True):
            if isinstance(reply, Refusal | Down):
                return MissReason.DENIED if reply.startswith("NOPERM") else MissReason.TIER_DOWN
            found[source] = bytes(reply)
        return found

    def forget(self, sources: Iterable[bytes] | None) -> None:
        """These (None = any) have changed."""
        with self._lock:
            self._turn += 1
            if sources is None:
                self._known.clear()
            else:
                for source in sources:
                    self._known.pop(source, None)


class Publisher:
    """Moves editions, and tells every process. Idempotent: what cannot be confirmed is applied again."""

    def __init__(self, client: Client, *, replicas: int = 0, wait_seconds: float = 1.0) -> None:
        """replicas: so many must have each change before it counts, so that the death of a primary loses none.
        wait_seconds: how long they are waited for."""
        self.client, self._prefix = client, client.address.prefix
        self._feed = Feed(client, origin=b"")
        self._replicas, self._wait_ms = replicas, max(1, round(wait_seconds * 1000))

    def apply(self, changes: Sequence[Change]) -> None:
        """Move the editions of `changes` unless they are that new already, and tell. Raises `TierError`."""
        latest: dict[bytes, int] = {}
        for change in changes:
            if not ANEW <= change.version < 10**_DIGITS:
                raise TierError(f"a version is a number of at most {_DIGITS} digits, not {change.version}")
            known = latest.get(change.source)
            anew = ANEW in (known, change.version)
            latest[change.source] = ANEW if anew else max(change.version, known or 0)
        pending = list(latest.items())
        for start in range(0, len(pending), _AT_ONCE):
            self._apply(pending[start : start + _AT_ONCE])

    def follow(self, tables: Mapping[str, Collection[str]], seconds: float = SECONDS) -> None:
        """Nothing older than `seconds` was missed of these tables (what rows call them → their groups). Raises
        `TierError`."""
        tell_followed(self.client, tables, seconds)

    def _apply(self, changes: Sequence[tuple[bytes, int]]) -> None:
        requests = []
        for source, version in changes:
            key = edition_key(self._prefix, source)
            digits = "" if version == ANEW else f"{version:0{_DIGITS}d}"
            requests.append(Request(key, _MOVE.words([key], [digits, secrets.token_hex(8), KEPT_SECONDS])))
        for reply in self.client.ask(requests):
            if isinstance(reply, Refusal | Down):
                raise TierError(f"an edition was not moved: {reply}")
        self._feed.tell(sources=[source for source, _ in changes])
        self._wait([request.key for request in requests if request.key is not None])

    def _wait(self, keys: Sequence[bytes]) -> None:
        """Until enough replicas have all that was written to the nodes of `keys` and of the stream."""
        if self._replicas < 1:
            return
        for node, key in {self.client.node_of(key): key for key in (*keys, self._feed.key)}.items():
            if node is None:
                raise TierError("no node of the shared tier is known for what was written; it is written again")
            # WAIT is about its own connection's writes: one more, which comes after all the others
            *_, reply = self.client.ask_node(
                node, [("SET", key + b":w", b"", "EX", 60), ("WAIT", self._replicas, self._wait_ms)]
            )
            if isinstance(reply, Refusal | Down) or int(reply) < self._replicas:
                raise TierError(
                    f"{self._replicas} replicas were to confirm a change, and {reply} did; "
                    "see that they run, or ask for fewer (replicas: 0 where there are none)"
                )
