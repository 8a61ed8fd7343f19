"""The memory tier: a dict, a lossy recency ring, and a policy behind one lock that hits never take.

Hits go through `hit_index` and take no lock. Writes, evictions and the maintenance pass that drains the recency ring
into the policy are serialised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from mmcache import forks
from mmcache.model.block import Facts
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import IntegrityError, TierClosedError
from mmcache.model.event import Event, Evicted, EvictReason, Expired, MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import MemorySettings
from mmcache.tiers.base import Deadline, Found, Held, TierStats
from mmcache.tiers.hit_index import Below, Entry, hit_index

ENTRY_OVERHEAD_BYTES = 1680
"""What one entry takes besides payload, skeleton and ready form, measured: header, map and policy."""


class Evictor(Protocol):
    """What this tier needs of a policy (see `policies.base.Policy`)."""

    def add(self, key: Key, facts: Facts, now: float) -> None: ...
    def touch(self, key: Key, now: float) -> None: ...
    def drop(self, key: Key) -> None: ...
    def victims(self, now: float) -> Iterator[Key]: ...


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
    ) -> None:
        self.settings = settings
        self._policy = policy
        self._thaw = thaw
        self._clock = clock or SystemClock()
        self._emit = emit
        self._holds = holds
        self._entries: dict[Key, Entry] = {}
        self._pins: dict[Key, int] = {}
        self._bytes = 0
        self._pinned_bytes = 0
        self._lock = threading.RLock()
        self._closed = False
        self._index = hit_index(self._entries, below, settings.recency_ring, self._clock, shared, catch_up)
        self.peek = self._index.peek
        """`peek(key, default=None)`: the value if it is here and alive. The hot path; takes no lock."""
        self.get_or_below = self._index.get
        """`get_or_below(key, default=None)`: like `peek`, but `below(key, default)` answers what is not here."""
        forks.join(self)

    @property
    def hits(self) -> int:
        """Exact number of hits since the start."""
        return self._index.hits

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`. Counts a hit for each key found."""
        self.check_open()
        entries = [self.entry(key) for key in keys]
        return [e if isinstance(e, MissReason) else Found(e[3], e[2]) for e in entries]

    def look(self, key: Key) -> Found | MissReason:
        """Like `get` of one key, but no hit is counted and no recency changes."""
        entry = self._entries.get(key)
        if entry is None:
            return MissReason.ABSENT
        ended = entry[2] is not None and entry[2] <= self._clock.monotonic()
        return MissReason.EXPIRED if ended else Found(entry[3], entry[2])

    def entry(self, key: Key, *, counted: bool = True) -> Entry | MissReason:
        """The entry of `key`, or why there is none. `counted`: as a hit, and a use."""
        entry = self._entries.get(key)
        if entry is None:
            return MissReason.ABSENT
        deadline = entry[2]
        if deadline is not None and deadline <= self._clock.monotonic():
            self._expire(key, entry)
            return MissReason.EXPIRED
        if counted:
            self._index.touched(key)
        return entry

    def _expire(self, key: Key, entry: Entry) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                self._remove(key)
                self._emit(Expired(key, self.name))

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`. Evicts first, so the limit holds at every moment."""
        self.check_open()
        with self._lock:
            now = self._clock.monotonic()
            self.maintain(now)
            return [self._put_one(frame, deadline, now) for frame, deadline in zip(frames, deadlines, strict=True)]

    def promote(self, frame: Frame, deadline: Deadline, unless: Callable[[], bool]) -> bool:
        """Put one frame that a lower tier gave, unless it was outdated meanwhile: asked under the lock."""
        self.check_open()
        with self._lock:
            now = self._clock.monotonic()
            self.maintain(now)
            return not unless() and self._put_one(frame, deadline, now) is None

    def _put_one(self, frame: Frame, deadline: Deadline, now: float) -> RefuseReason | None:
        thawed = self._thaw(frame)
        key, size = frame.key, charged_bytes(frame, thawed)
        pins = self._pins.get(key, 0)
        self._remove(key)  # whatever follows: an older value must not outlive its replacement
        if size > self.settings.limit_bytes * self.settings.largest_share:
            return RefuseReason.TOO_LARGE
        if pins and self._pinned_bytes + size > self._pinnable_bytes():
            pins = 0
        if not self._make_room(size, now):
            return RefuseReason.PINNED
        entry: Entry = (thawed.value(), None, deadline, frame, size, deadline) if thawed.constant else (
            None, thawed.value, deadline, frame, size, deadline
        )  # fmt: skip
        self._entries[key] = entry
        self._bytes += size
        if pins:
            self._pins[key] = pins
            self._pinned_bytes += size
        self._policy.add(key, self._facts(key, entry), now)
        return None

    def _facts(self, key: Key, entry: Entry) -> Facts:
        header = entry[3].header
        return Facts(entry[4], header.cost, header.modality, header.tenant, references=self._holds(key))

    def refresh(self, keys: Iterable[Key]) -> None:
        """Tell the policy that other blocks began to need `keys`."""
        with self._lock:
            now = self._clock.monotonic()
            for key in keys:
                if (entry := self._entries.get(key)) is not None:
                    self._policy.add(key, self._facts(key, entry), now)

    def _make_room(self, size: int, now: float) -> bool:
        excess = self._bytes + size - self.settings.limit_bytes
        if excess <= 0:
            return True
        chosen = []
        for key in self._policy.victims(now):
            if key in self._pins or key not in self._entries:
                continue
            chosen.append(key)
            excess -= self._charge(key)
            if excess <= 0:
                break
        else:
            return False  # nothing is evicted for a block that would not fit anyway
        for key in chosen:
            charge = self._charge(key)
            self._remove(key)
            self._emit(Evicted(key, self.name, EvictReason.SPACE, charge))
        return True

    def _charge(self, key: Key) -> int:
        entry = self._entries.get(key)
        return entry[4] if entry else 0

    def _remove(self, key: Key) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._bytes -= entry[4]
        if self._pins.pop(key, 0):
            self._pinned_bytes -= entry[4]
        self._policy.drop(key)
        return True

    def maintain(self, now: float | None = None) -> list[Key]:
        """Drain the recency ring into the policy; the keys touched since the last pass (some may be lost)."""
        with self._lock:
            now = self._clock.monotonic() if now is None else now
            touched = self._index.drain()
            for key in touched:
                self._policy.touch(key, now)
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
            if not charge:
                return False
            if key not in self._pins:
                if self._pinned_bytes + charge > self._pinnable_bytes():
                    return False
                self._pinned_bytes += charge
            self._pins[key] = self._pins.get(key, 0) + 1
            return True

    def unpin(self, key: Key) -> None:
        """Take one pin back."""
        with self._lock:
            count = self._pins.get(key, 0)
            if count > 1:
                self._pins[key] = count - 1
            elif count:
                del self._pins[key]
                self._pinned_bytes -= self._charge(key)

    def _pinnable_bytes(self) -> float:
        return self.settings.limit_bytes * self.settings.pinned_share

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`. Pinned blocks go too: a pin delays eviction, never invalidation."""
        self.check_open()
        with self._lock:
            return sum([self._remove(key) for key in keys])

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
        detail: dict[str, int | float | str] = {"hits": self.hits, "pinned_bytes": self._pinned_bytes}
        return TierStats(len(self._entries), self._bytes, self.settings.limit_bytes, detail)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` when counts, limit, pins or policy disagree with the map."""
        with self._lock:
            total = sum(entry[4] for entry in self._entries.values())
            if total != self._bytes:
                raise IntegrityError(f"{self._bytes} bytes counted, {total} held")
            if self._bytes > self.settings.limit_bytes:
                raise IntegrityError(f"{self._bytes} bytes held, the limit is {self.settings.limit_bytes}")
            if sum(self._charge(key) for key in self._pins) != self._pinned_bytes:
                raise IntegrityError("pinned bytes do not add up")
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
