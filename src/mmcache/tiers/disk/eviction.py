"""Which segment goes when space is short, and which of its frames are copied forward. Pure but for file locks.

A segment is worth what the frames that go with it would cost to compute again, each halved with every `halving`
generations since its last use, and the copying of the others, per byte that becomes free: a log-structured
cleaner's cost-benefit rule (Rosenblum and Ousterhout, The Design and Implementation of a Log-Structured File System,
1992) with a cache's notion of benefit (GreedyDual-Size, Cao and Irani, 1997). Dead bytes and expired frames
are worth nothing.

Where tenants have classes, a value counts times the tenant's fair share ÷ its share of all bytes, both among those that
hold anything (a fair share is weight ÷ sum of weights): who holds more than its due is evicted first. This is a pull
and no bound, since a segment holds blocks of several tenants; quotas are the bound.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mmcache.model.clock import Clock
from mmcache.model.frame import aligned
from mmcache.model.key import Key
from mmcache.settings import Tenant
from mmcache.tiers.base import Held
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import Ledger, Placed, Usage
from mmcache.tiers.disk.segments import end_of_frames, locked

Order = Callable[[Iterable[Held]], Iterable[Key]]
"""Keys of the given blocks, the first to go first."""

_LOOKED_AT = 8
_WEIGHED = 4096
"""Frames are weighed one by one in at least 8 segments, and until so many were; totals rule out the other segments."""
_COPIED_SHARE = 0.25
"""At most this share of a segment is copied forward: beyond it, evicting would mostly write."""
_SECONDS_PER_BYTE = 1e-9
"""A block of no known cost is worth at least its transfer."""


def _faded(generations: int, halving: float) -> float:
    """What is left of a value; a damaged index may say that it was used in the future."""
    return 0.5 ** (max(0, generations) / halving)  # type: ignore[no-any-return]


class NoRoomError(Exception):
    """There is not enough to evict; says why."""


@dataclass
class Plan:
    """What a transaction decided; files are touched after its commit."""

    evicted: list[Placed] = field(default_factory=list)
    survivors: list[Placed] = field(default_factory=list)
    unlink: set[int] = field(default_factory=set)
    doomed: list[int] = field(default_factory=list)


class Reclaimer:
    """One attempt at making room, within a write transaction, which keeps all other reclaimers away.

    Its locks tell which segments have no writer. They must be gone before the transaction ends: the next reclaimer
    would take them for a writer's, and find no room.
    """

    def __init__(
        self, layout: Layout, clock: Clock, order: Order | None, mine: int, weights: Mapping[bytes, float] | None = None
    ) -> None:
        """`weights` by owner; None = all tenants are alike."""
        self._layout, self._clock, self._order, self._mine = layout, clock, order, mine
        self._weights = weights
        self._due: dict[bytes, float] = {}
        self._locks: dict[int, int] = {}

    def _lock(self, number: int) -> int | None:
        if number not in self._locks:
            fd = locked(self._layout.segment(number))
            if fd is None:
                return None
            self._locks[number] = fd
        return self._locks[number]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for fd in self._locks.values():
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone leaves it to a child that was forked meanwhile
            os.close(fd)
        self._locks.clear()

    def collect_dead(self, ledger: Ledger) -> Plan:
        """Take back what crashed writers left: unwritten tails, empty segments, files that the index does not know."""
        plan = Plan()
        known = ledger.segments()
        for number, usage in known.items():
            if number == self._mine:
                continue
            if not self._layout.segment(number).exists():
                ledger.remove(number)
                continue
            if usage.sealed or (fd := self._lock(number)) is None:
                continue
            placed = ledger.placed(number)
            if placed:
                end = aligned(max(frame.record.offset + frame.record.length for frame in placed))
                end = end_of_frames(fd, end)  # somebody may still look at a frame that was dropped meanwhile
                if os.fstat(fd).st_size > end:
                    os.ftruncate(fd, end)
                ledger.seal(number, end)
            else:
                ledger.remove(number)
                plan.unlink.add(number)
        for path in self._layout.segments.glob("*.seg"):
            number = int(path.stem, 16)
            if number not in known and number != self._mine and self._lock(number) is not None:
                plan.unlink.add(number)
        return plan

    def make_room(self, ledger: Ledger, needed: int, limit: int, spare: int) -> Plan:
        """Evict whole segments until `needed` more bytes fit below `limit`, and into what the file system can spare:
        where others fill it, the cache gives way. Raises `NoRoomError`."""
        plan = self.collect_dead(ledger)
        self._due = self._dues(ledger)
        segments = {number: usage for number, usage in ledger.segments().items() if number != self._mine}
        total = sum(usage.allocated for usage in segments.values())
        limit = min(limit, total + spare)
        if needed > limit:
            raise NoRoomError("the file system would have less free than `free_space_floor`")
        while total + needed > limit:
            number = self._least(ledger, segments)
            if number is None:
                raise NoRoomError("every other segment is being written by a live process")
            usage = segments.pop(number)
            total -= usage.allocated
            placed = ledger.placed(number)
            survivors = self._worthy(placed, usage, ledger.generation, len(segments) + 1)
            kept = {frame.key for frame in survivors}
            gone = [frame for frame in placed if frame.key not in kept]
            plan.evicted += gone
            plan.unlink.add(number)
            if survivors:
                ledger.doom(number, gone)
                plan.doomed.append(number)
                plan.survivors += survivors
            else:
                ledger.remove(number)
        return plan

    def _dues(self, ledger: Ledger) -> dict[bytes, float]:
        """Owner → fair share ÷ share held: above 1 for who holds less than its due."""
        if not self._weights:
            return {}
        held = ledger.owners()
        weights = {owner: self._weights.get(owner, Tenant().weight) for owner in held}
        total, weight = sum(held.values()), sum(weights.values())
        return {owner: weights[owner] / weight * total / max(1, held[owner]) for owner in held}

    def _least(self, ledger: Ledger, segments: dict[int, Usage]) -> int | None:
        halving = max(1.0, len(segments) / 2)

        def rough(number: int) -> float:
            usage = segments[number]
            age: float = _faded(ledger.generation - usage.used, halving)
            return age * usage.live / max(1, usage.allocated)

        looked: dict[int, float] = {}
        weighed = 0
        for number in sorted((n for n in segments if segments[n].allocated), key=rough):
            if self._lock(number) is not None or not self._layout.segment(number).exists():
                placed = ledger.placed(number)
                weighed += len(placed)
                lost = self._values(placed, ledger.generation, halving)
                kept = self._worthy(placed, segments[number], ledger.generation, len(segments))
                copied = sum(frame.record.length for frame in kept)
                for frame in kept:
                    lost.pop(frame.key, None)
                freed = segments[number].allocated - copied
                looked[number] = (sum(lost.values()) + copied * _SECONDS_PER_BYTE) / freed
            if len(looked) >= _LOOKED_AT and weighed >= _WEIGHED:
                break
        return min(looked, key=looked.__getitem__, default=None)

    def _values(self, placed: list[Placed], generation: int, halving: float) -> dict[Key, float]:
        now = self._clock.monotonic()
        values: dict[Key, float] = {}
        for frame in placed:
            deadline = frame.record.deadline(self._clock)
            cost = frame.record.cost + frame.record.length * _SECONDS_PER_BYTE
            expired = deadline is not None and deadline <= now
            due = self._due.get(frame.owner, 1.0)
            values[frame.key] = 0.0 if expired else due * cost * _faded(generation - frame.used, halving)
        if self._order is not None:
            ranked = list(self._order(frame.record.held(frame.key, self._clock) for frame in placed))
            values = {key: values[key] and float(rank) for rank, key in enumerate(ranked, 1) if key in values}
        return values

    def _worthy(self, placed: list[Placed], usage: Usage, generation: int, segments: int) -> list[Placed]:
        """Frames used since their segment was begun, the best value per byte first, as long as they are little."""
        values = self._values(placed, generation, max(1.0, segments / 2))
        used = [frame for frame in placed if frame.used > usage.born and values.get(frame.key)]
        used.sort(key=lambda frame: values[frame.key] / frame.record.length, reverse=True)
        left, survivors = int(usage.allocated * _COPIED_SHARE), []
        for frame in used:
            if frame.record.length <= left:
                left -= frame.record.length
                survivors.append(frame)
        return survivors
