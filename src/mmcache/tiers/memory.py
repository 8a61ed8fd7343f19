"""The memory tier: a dict, a lossy recency ring, and a policy behind one lock that hits never take.

Hits go through `hit_index` and take no lock. Writes, evictions and the maintenance pass that drains the recency ring
into the policy and the lifetime are serialised. A put tells the policy of the new block first, and then asks it for
victims: where it may refuse and the new block itself comes up, that one goes: admission and eviction are one decision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from mmcache import forks
from mmcache.model.block import Facts
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import IntegrityError, TierClosedError
from mmcache.model.event import Event, Evicted, EvictReason, Expired, MissReason, Refused, RefuseReason, Why
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import MemorySettings
from mmcache.tiers.asked import Asked, Evictor
from mmcache.tiers.base import Deadline, Found, Held, TierStats
from mmcache.tiers.expiry import Expiries
from mmcache.tiers.hit_index import Below, Entry, hit_index
from mmcache.tiers.pins import Pins
from mmcache.tiers.reads import Reads
from mmcache.tiers.room import FITS, Room, make_room

ENTRY_OVERHEAD_BYTES = 1680
"""What one entry takes besides payload, skeleton and ready form, measured: header, map and policy."""


class Lives(Protocol):
    """What this tier tells a lifetime (see `ttl.base.Lifetime`)."""

    def used(self, key: Key, now: float) -> None: ...
    def ended(self, key: Key, age: float, stale: bool) -> None: ...


class Thawed(Protocol):
    """A frame made usable (see `codecs.pipeline.Thawed`)."""

    @property
    def constant(self) -> bool:
        """Whether one object may be handed to every caller."""

    @property
    def value(self) -> Callable[[], object]:
        """Makes the value, fresh each call."""

    @property
    def held(self) -> int:
        """Bytes that the ready form takes besides payload and skeleton."""


def charged_bytes(frame: Frame, thawed: Thawed) -> int:
    """Bytes that a frame is charged for: payload, skeleton, ready form and the entry's own objects."""
    return frame.size + memoryview(frame.header.tree).nbytes + thawed.held + ENTRY_OVERHEAD_BYTES


class MemoryTier:
    """Frames in this process's memory, ready to be handed out. Never holds more than its limit."""

    name = "memory"
    fork_order = 0

    def __init__(
        self,
        settings: MemorySettings,
        policy: Evictor,
        thaw: Callable[[Frame], Thawed],
        *,
        clock: Clock | None = None,
        emit: Callable[[Event], None] = lambda event: None,
        below: Below = lambda key, default: default,
        shared: memoryview | None = None,
        holds: Callable[[Key], int] = lambda key: 0,
        catch_up: Callable[[], object] | None = None,
        lives: Lives | None = None,
        refresh_window: Callable[[float], float] = lambda cost: 0.0,
        grace_seconds: float = 0.0,
        quotas: Mapping[str, int] | None = None,
        victims_of: Callable[[str, float], Iterator[Key]] | None = None,
    ) -> None:
        """`holds(key)`: how many need it. `refresh_window(cost)`: seconds before its deadline from which a block that
        took `cost` seconds may be refreshed. `grace_seconds`: how long an expired block is kept to be served while it
        is revalidated. `quotas`: most bytes a tenant; `victims_of(tenant, now)` gives that tenant's order."""
        self.settings = settings
        self._policy = Asked(policy, emit)
        self._thaw = thaw
        self._clock = clock or SystemClock()
        self._emit = emit
        self._holds, self._lives = holds, lives
        self._refresh_window, self._grace_seconds = refresh_window, grace_seconds
        self._quotas, self._victims_of = quotas or {}, victims_of
        self._entries: dict[Key, Entry] = {}
        self._pins = Pins(settings.limit_bytes * settings.pinned_share)
        self._expiries = Expiries()
        self._bytes = 0
        self._tenant_bytes: dict[str, int] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._index = hit_index(self._entries, below, settings.recency_ring, self._clock, shared, catch_up)
        self.reads = Reads(self._index)
        self.peek = self._index.peek
        """`peek(key, default=None)`: the value if it is here and alive. The hot path; takes no lock."""
        self.fresh = self._index.fresh
        """`fresh(key, default=None)`: like `peek`, but `default` for what may be refreshed early as well."""
        self.get_or_below = self._index.get
        """`get_or_below(key, default=None)`: like `peek`, but `below(key, default)` answers what is not here."""
        self.sample = self._index.sample
        """`sample(every, sink)`: see `HitIndex.sample`."""
        forks.join(self)

    @property
    def hits(self) -> int:
        """Exact number of hits since the start."""
        return self._index.hits

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`. Counts a hit for each key found."""
        self.check_open()
        entries = [self.entry(key) for key in keys]
        for key, entry in zip(keys, entries, strict=True):
            if not isinstance(entry, MissReason):
                self.used(key)
        return [e if isinstance(e, MissReason) else Found(e[3], e[2]) for e in entries]

    def look(self, key: Key) -> Found | MissReason:
        """Like `get` of one key, but no hit is counted and no recency changes."""
        entry = self._entries.get(key)
        if entry is None:
            return MissReason.ABSENT
        ended = entry[2] is not None and entry[2] <= self._clock.monotonic()
        return MissReason.EXPIRED if ended else Found(entry[3], entry[2])

    def used(self, key: Key) -> None:
        """Count a hit of `key`, and a use."""
        self.reads.touched(key)

    def entry(self, key: Key, *, stale: bool = False) -> Entry | MissReason:
        """The entry of `key`, or why there is none; counts nothing. `stale`: also when it is over but within its
        grace."""
        entry = self._entries.get(key)
        if entry is None:
            return MissReason.ABSENT
        deadline = entry[2]
        if deadline is not None and deadline <= (now := self._clock.monotonic()):
            kept = now < deadline + self._grace_seconds
            if not kept:
                self._expire(key, entry)
            if not (kept and stale):
                return MissReason.EXPIRED
        return entry

    def _expire(self, key: Key, entry: Entry) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                self._remove(key, stale=True)
                self._emit(Expired(key, self.name))

    def put(
        self, frames: Sequence[Frame], deadlines: Sequence[Deadline], unless: Callable[[], bool] = lambda: False
    ) -> list[RefuseReason | None]:
        """See `Tier.put`. Evicts first, so the limit holds at every moment. Emits what it refuses. `unless`: asked
        under the lock, whether what is put was invalidated meanwhile."""
        self.check_open()
        with self._lock:
            if unless():
                return [RefuseReason.INVALIDATED] * len(frames)
            now = self._clock.monotonic()
            self.maintain(now)
            return [self._put_one(frame, deadline, now) for frame, deadline in zip(frames, deadlines, strict=True)]

    def promote(self, frame: Frame, deadline: Deadline, unless: Callable[[], bool]) -> bool:
        """Put one frame that a lower tier gave, unless it was outdated meanwhile: asked under the lock."""
        self.check_open()
        with self._lock:
            now = self._clock.monotonic()
            self.maintain(now)
            return not unless() and self._put_one(frame, deadline, now, silent=True) is None

    def _put_one(self, frame: Frame, deadline: Deadline, now: float, silent: bool = False) -> RefuseReason | None:
        thawed = self._thaw(frame)
        key, size = frame.key, charged_bytes(frame, thawed)
        pins = self._remove(key)  # whatever follows: an older value must not outlive its replacement
        due = deadline if deadline is None else deadline - self._refresh_window(frame.header.cost)
        entry: Entry = (thawed.value(), None, deadline, frame, size, due) if thawed.constant else (
            None, thawed.value, deadline, frame, size, due
        )  # fmt: skip
        try:
            refused, why = self._admit(key, entry, now)
        except Exception as error:  # noqa: BLE001 - policy and references may be plug-ins; the caller gets its value
            self._policy.failed(error)
            self._policy.drop(key)
            refused, why = RefuseReason.ADMISSION, ()
        if refused is not None:
            if not silent:
                self._emit(Refused(key, self.name, refused, why=why))
            return refused
        self._entries[key] = entry
        self._charge_tenant(entry, size)
        self._expiries.set(key, None if deadline is None else deadline + self._grace_seconds)
        if pins:
            self._pins.add(key, size, pins)
        return None

    def _admit(self, key: Key, entry: Entry, now: float) -> tuple[RefuseReason | None, Why]:
        """Tell the policy of the new block and make room for it; why not, if not."""
        size, tenant = entry[4], entry[3].header.tenant
        if size > self.settings.limit_bytes * self.settings.largest_share:
            return RefuseReason.TOO_LARGE, ()
        quota = self._quotas.get(tenant)
        if quota is not None and size > quota:
            return RefuseReason.QUOTA, ()
        self._policy.add(key, self._facts(key, entry), now)
        space = own = FITS
        if quota is not None and self._victims_of is not None:
            own = self._room(key, self._tenant_bytes.get(tenant, 0) + size - quota, self._victims_of(tenant, now))
        if own.fits:
            going = set(own.victims)
            excess = self._bytes + size - self.settings.limit_bytes - sum(map(self._charge, going))
            order = self._policy.victims(now)
            space = self._room(key, excess, (other for other in order if other not in going) if going else order)
        if own.fits and space.fits:  # only now: nothing is evicted for a block that will not stay
            self._evict(own.victims, EvictReason.QUOTA, now)
            self._evict(space.victims, EvictReason.SPACE, now)
            return None, ()
        why = self._policy.why(key, now)
        self._policy.drop(key)
        if own.outranked or space.outranked:
            return RefuseReason.ADMISSION, why
        return RefuseReason.PINNED if own.fits else RefuseReason.QUOTA, why

    def _room(self, new: Key, excess: int, order: Iterator[Key]) -> Room:
        return make_room(
            new, excess, order, charge=self._charge, pinned=self._pins.__contains__, holds=self._holds,
            spared_bytes=self._pins.limit_bytes, may_refuse=self._policy.refuses,
        )  # fmt: skip

    def _evict(self, victims: Iterable[Key], reason: EvictReason, now: float) -> None:
        for key in victims:
            charge, why = self._charge(key), self._policy.why(key, now)
            self._remove(key)
            self._emit(Evicted(key, self.name, reason, charge, why))

    def _facts(self, key: Key, entry: Entry, entropy: float | None = None) -> Facts:
        header = entry[3].header
        return Facts(entry[4], header.cost, header.modality, header.tenant, entropy, self._holds(key))

    def explain(self, key: Key) -> dict[str, float]:
        """The policy's score of `key` and its parts; empty where it gives none."""
        with self._lock:
            self.maintain()
            return dict(self._policy.why(key, self._clock.monotonic()))

    def refresh(self, keys: Iterable[Key], entropy: float | None = None) -> None:
        """Tell the policy that other blocks began to need `keys`, or what a cross-attention over them measured."""
        with self._lock:
            now = self._clock.monotonic()
            try:
                for key in keys:
                    if (entry := self._entries.get(key)) is not None:
                        self._policy.add(key, self._facts(key, entry, entropy), now)
            except Exception as error:  # noqa: BLE001 - as in `_put_one`; it is only news
                self._policy.failed(error)

    def _charge(self, key: Key) -> int:
        entry = self._entries.get(key)
        return entry[4] if entry else 0

    def space(self, tenant: str) -> tuple[int, int, int]:
        """Bytes that `tenant` holds, that all hold, and that they may hold."""
        return self._tenant_bytes.get(tenant, 0), self._bytes, self.settings.limit_bytes

    def _charge_tenant(self, entry: Entry, size: int) -> None:
        self._bytes += size
        tenant = entry[3].header.tenant
        held = self._tenant_bytes.get(tenant, 0) + size
        if held:
            self._tenant_bytes[tenant] = held
        else:
            self._tenant_bytes.pop(tenant, None)

    def _remove(self, key: Key, stale: bool = False) -> int:
        """Forget `key`; how often it was pinned."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return 0
        self._charge_tenant(entry, -entry[4])
        self._expiries.forget(key)
        self._policy.drop(key)
        if self._lives is not None:
            self._lives.ended(key, max(0.0, self._clock.wall() - entry[3].header.created), stale)
        return self._pins.forget(key)

    def maintain(self, now: float | None = None) -> list[Key]:
        """Drain the recency ring into policy and lifetime, and drop what is over; the keys touched since the last pass
        (some may be lost)."""
        with self._lock:
            now = self._clock.monotonic() if now is None else now
            touched = self.reads.drain()
            self._policy.touch_all(touched, now)
            if self._lives is not None:
                for key in touched:
                    self._lives.used(key, now)
            for key in self._expiries.over(now):
                self._remove(key, stale=True)
                self._emit(Expired(key, self.name))
            return touched

    @property
    def seen(self) -> int:
        """The shared sequence number that this process caught up with."""
        return self._index.seen

    def caught_up(self, sequence: int) -> None:
        """Invalidations up to this shared sequence number were applied; hits may be served again."""
        self._index.seen = sequence

    def pin(self, key: Key) -> bool:
        """Keep `key` from eviction until `unpin`; False when it is not here or the pinned share is used up."""
        with self._lock:
            charge = self._charge(key)
            return bool(charge) and self._pins.add(key, charge)

    def unpin(self, key: Key) -> None:
        """Take one pin back."""
        with self._lock:
            self._pins.take_back(key)

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`. Pinned blocks go too: a pin delays eviction, never invalidation."""
        self.check_open()
        with self._lock:
            before = len(self._entries)
            for key in keys:
                self._remove(key)
            return before - len(self._entries)

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        self.check_open()
        for key, (_, _, deadline, frame, size, _) in list(self._entries.items()):
            h = frame.header
            yield Held(key, size, deadline, h.created, h.tenant, h.namespace, h.model, h.modality)

    def flush(self) -> None:
        """Nothing to do: memory is not durable."""

    def stats(self) -> TierStats:
        """Blocks and bytes now; `hits` is exact."""
        detail: dict[str, int | float | str] = {"hits": self.hits, "pinned_bytes": self._pins.bytes}
        detail |= {f"bytes[{tenant}]": held for tenant, held in self._tenant_bytes.items() if self._victims_of}
        return TierStats(len(self._entries), self._bytes, self.settings.limit_bytes, detail)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` when counts, limit, pins or policy disagree with the map."""
        with self._lock:
            total = sum(entry[4] for entry in self._entries.values())
            if total != self._bytes:
                raise IntegrityError(f"{self._bytes} bytes counted, {total} held")
            if self._bytes > self.settings.limit_bytes:
                raise IntegrityError(f"{self._bytes} bytes held, the limit is {self.settings.limit_bytes}")
            self._pins.check({key: entry[4] for key, entry in self._entries.items()})
            for tenant, held in self._tenant_bytes.items():
                if held > self._quotas.get(tenant, held):
                    raise IntegrityError(f"tenant {tenant!r} holds {held} bytes, its quota is {self._quotas[tenant]}")
            if sum(self._tenant_bytes.values()) != total:
                raise IntegrityError(f"tenants hold {sum(self._tenant_bytes.values())} bytes, {total} are held")
            if set(self._policy.victims(self._clock.monotonic())) != set(self._entries):
                raise IntegrityError("the policy knows other keys than the map")
            for key, entry in self._entries.items():
                if entry[3].key != key:
                    raise IntegrityError(f"{key} holds the frame of {entry[3].key}")

    def before_fork(self) -> None:
        """A child must inherit neither a half-done update nor a lock whose holder is not there."""
        self._lock.acquire()

    def after_fork(self, child: bool) -> None:
        """See `forks`."""
        self._lock.release()

    def close(self) -> None:
        """Forget everything. Values that callers hold stay readable."""
        with self._lock:
            self._closed = True
            for key in list(self._entries):
                self._remove(key)

    def check_open(self) -> None:
        """Raise `TierClosedError` after `close()`."""
        if self._closed:
            raise TierClosedError("the memory tier is closed; open a new Cache")
