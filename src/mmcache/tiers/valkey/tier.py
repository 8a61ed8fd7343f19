"""`ValkeyTier`: frames on Valkey or Redis, shared by machines: one server, one that sentinels know, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import SettingsError, TierClosedError
from mmcache.model.event import Event, MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import SharedSettings
from mmcache.tiers.base import Deadline, Found, Held, TierStats
from mmcache.tiers.valkey.census import Census
from mmcache.tiers.valkey.client import Client, ignore
from mmcache.tiers.valkey.fence import Tokens
from mmcache.tiers.valkey.leases import SharedClaims
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.reader import Reader
from mmcache.tiers.valkey.record import MACHINE_BYTES
from mmcache.tiers.valkey.watch import ClockWatch, asleep, this_machine
from mmcache.tiers.valkey.writer import Writer

_SETTINGS = {field.name for field in fields(SharedSettings)}


class ValkeyTier:
    """`Tier` over `Client`: `Cache(lower=[ValkeyTier.open("valkey://127.0.0.1:6379")])`.

    A batch is one round trip a node, and one more where large blocks are in pieces. A node that is slow or gone costs
    one timeout, then nothing until it heals: its keys are missed with `timeout` or `tier-down`, its puts are refused,
    and a drop raises `TierError`, so that the cache remembers what must not be read from here any more. Keys of other
    nodes are not concerned.

    **A put** with a token of `claims` is stored only if nothing has overtaken its computation: no other leader, no
    drop, no put without a token. Else it is refused as `invalidated`; what the server holds is newer, so it must not be
    dropped for that. A put without a token is stored, and outdates what is being computed. A full server (`noeviction`)
    refuses with `quota`, and the older value goes; one that evicts costs misses, whatever it evicts. What a node was
    sent but did not confirm in time may be stored or not: it counts as refused, and is dropped when it is reached.

    **Large blocks** (over `chunk_bytes`) are sent in pieces under a fresh id, which end by themselves after a minute
    unless one script then makes them the block, in one step. A reader gets the head, then all pieces; one that is
    missing is a miss, and pieces of two values never meet.

    **Deadlines** hold to the second whatever becomes of the server's clock; see `clocks` for how. In short: each frame
    carries its deadline in the own time of the machine that stored it. That machine needs no other clock. Another one
    translates it by a ledger on the server that all keep; where it cannot (nobody has followed the server's clock from
    then to now), the block is missed as `abstained`. The server's own expiry only collects garbage, `spare_seconds`
    after the deadline: a server whose clock is set forward by more than that loses blocks early. A failover to a
    replica with another clock is a step like any other.

    **Rights.** A tenant's user needs no more than its prefix and these commands::

        user NAME on >PASSWORD resetchannels ~PREFIX{* -@all +get +getrange +set +strlen +exists +rename +pexpire \\
            +persist +unlink +eval +evalsha +time +scan +auth +select +role +readonly +asking +cluster|slots \\
            +expire +xadd +xread +xrevrange +hset +hgetall +sadd +smembers

    The last line is for a whole `Cache(shared=…)`: news, rows, rollouts. `scan` lists the names of all prefixes, though
    not their values: leave it out where names must not be seen, and `scan()` fails, `stats()` counts no blocks. Names
    tell nothing: keys are keyed digests, which nobody can compute without the tenant's secret. What a user may not read
    is missed as `denied`.

    **A failover** to a replica may lose what its primary did last: puts, and drops too. Rows are safe from that (see
    `editions`); else give blocks a deadline.
    """

    name = "valkey"

    def __init__(
        self,
        settings: SharedSettings,
        *,
        client: Client | None = None,
        clock: Clock = SystemClock(),  # noqa: B008  (stateless)
        emit: Callable[[Event], None] = ignore,
        machine: bytes | None = None,
        asleep: Callable[[], float] = asleep,
        heartbeat: bool = True,
    ) -> None:
        """Connects at first use.

        client: one that others use too, and whoever made it closes; else it is the tier's own. machine: 8 bytes for
        whose own time `clock` and `asleep` tell, where that is not this machine's. heartbeat: whether a thread renews
        leases; else call `claims.beat()`. Raises `SettingsError`.
        """
        if machine is not None and len(machine) != MACHINE_BYTES:
            raise SettingsError(f"a machine is {MACHINE_BYTES} bytes, not {machine!r}")
        self.client = client or Client(settings, clock=clock, emit=emit)
        self._shared = client is not None
        names = Names(self.client.address.prefix)
        self.tokens = Tokens()
        """What puts of computations must prove. `WriteBehind` takes `tokens.mark`."""
        where = self.client.node_of
        watch = ClockWatch(
            self.client.ask, names.clock, clock, machine or this_machine(), asleep,
            near=lambda name: where(name) == where(names.clock),
        )  # fmt: skip
        self._watch = watch
        self._reader = Reader(self.client, names, watch, settings, clock, self.name, emit)
        self._writer = Writer(self.client, names, watch, self.tokens, settings, clock, self.name, emit)
        self._census = Census(self.client, names, watch, self.name, emit)
        self.claims = SharedClaims(
            self.client, names, self.tokens, settings.lease_seconds, emit, heartbeat=heartbeat
        )  # fmt: skip
        """One leader of all hosts."""
        self._closed = False

    @classmethod
    def open(cls, where: str | SharedSettings, **changes: Any) -> ValkeyTier:
        """A tier at a URL: `open("valkey://one,two?cluster=true", timeout_seconds=0.1)`.

        changes: of `SharedSettings`, and what the constructor takes. Raises `SettingsError`.
        """
        settings = SharedSettings(where) if isinstance(where, str) else where
        changed = {name: changes.pop(name) for name in _SETTINGS.intersection(changes)}
        return cls(replace(settings, **changed), **changes)

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`. Payloads are the caller's own; small ones are not yet verified."""
        self._check_open()
        return self._reader.get(keys) if keys else []

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._check_open()
        return self._writer.put(frames, deadlines) if frames else []

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`. Raises `TierError` when a node does not do it, after the others did: it must not be lost."""
        self._check_open()
        keys = list(keys)
        self.dropped(keys)
        return self._writer.drop(keys)

    def dropped(self, keys: Iterable[Key] | None) -> None:
        """Others have dropped `keys` (None = nobody knows which): for a while no replica is asked for them."""
        self._reader.dropped(keys)

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`. May name a key twice; an end that cannot be told is minus infinity. Raises `TierError`."""
        self._check_open()
        return self._census.scan()

    def look(self) -> None:
        """Look at the server's clock now. Calls do that by themselves, `watch.LOOK_SECONDS` apart."""
        self._check_open()
        self._watch.look()

    def flush(self) -> None:
        """Nothing waits here: a put that returned is on the server."""
        self._check_open()

    def stats(self) -> TierStats:
        """See `Tier.stats`. Lists all names of the prefix: seconds for millions. Nothing of nodes that are down."""
        self._check_open()
        found = self._census.count()
        detail: dict[str, int | float | str] = {
            "down": found.down,
            "chunked": found.chunked,
            "lost_writes": self._writer.lost,
            "overtaken_writes": self._writer.overtaken,
            "leases": len(self.tokens.due()),
            "lost_leases": self.tokens.lost,
            "blind_computations": self.tokens.blind,
        }
        return TierStats(found.blocks, found.bytes, None, detail | self.client.status())

    def close(self) -> None:
        """Close the connections. Blocks that were handed out stay valid."""
        if not self._closed:
            self._closed = True
            self.claims.close()
            if not self._shared:
                self.client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("the valkey tier was closed")
