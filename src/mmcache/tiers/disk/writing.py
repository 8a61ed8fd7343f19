"""The writing side of the disk tier: append to this process's segment, then point the index at it.

One lock per tier serialises writers of a process; LMDB's serialises the short index transactions of all processes.
Bytes are written before the transaction that makes them visible, so that what the index shows is complete while the
machine runs; after a power loss the frame's checksum decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from mmcache import forks
from mmcache.model.clock import Clock
from mmcache.model.errors import TierClosedError, TierError
from mmcache.model.event import Event, Evicted, EvictReason, Expired, Failed, Refused, RefuseReason
from mmcache.model.frame import Buffer, Frame
from mmcache.model.key import Key
from mmcache.settings import DiskSettings, Tenant
from mmcache.tiers.base import Deadline
from mmcache.tiers.disk.batch import Batch, Outdated, Pending, copy_of
from mmcache.tiers.disk.eviction import NoRoomError, Order, Plan, Reclaimer
from mmcache.tiers.disk.index import Index, Tables, is_full
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import Ledger, Placed, SegmentGoneError, forgetting, placed_in, removing
from mmcache.tiers.disk.memo import IndexMap
from mmcache.tiers.disk.record import Record, owner_of
from mmcache.tiers.disk.segments import Segment, new_number, refusal

_SEGMENTS_AT_LEAST = 8
"""A limit is divided into at least so many segments: the unit of eviction must stay small beside it."""
_UNSYNCED = 32
_PAGE = 4096
_INDEX_RESERVE = 512 << 10
"""Bytes of the file system left for the index to write the very transaction that makes room."""


class Writer:
    """All that changes the folder."""

    fork_order = 0

    def __init__(
        self, layout: Layout, index: Index, settings: DiskSettings, clock: Clock,
        emit: Callable[[Event], None], unmap: Callable[[], None], order: Order | None, maps: Sequence[IndexMap],
        outdated: Outdated, tenants: Mapping[str, Tenant],
    ) -> None:  # fmt: skip
        owners = {owner_of(name): tenant for name, tenant in tenants.items()}
        self._quotas = {owner: quota for owner, t in owners.items() if (quota := t.quota_bytes) is not None}
        self._weights = {owner: tenant.weight for owner, tenant in owners.items()}
        self._layout, self._index, self._settings = layout, index, settings
        self._clock, self._emit, self._unmap, self._outdated = clock, emit, unmap, outdated
        self._order, self._maps = order, maps
        self._segment_bytes = min(settings.segment_bytes, settings.limit_bytes // _SEGMENTS_AT_LEAST) // _PAGE * _PAGE
        self._lock = threading.RLock()
        self._segment: Segment | None = None
        self._unsynced: list[Segment] = []
        self._unsynced_bytes, self._files_changed = 0, True
        self._pending: list[Pending] = []
        self._lost: dict[Key, RefuseReason] = {}
        self._events: list[Event] = []
        self._closed = False
        self.touched: set[Key] = set()
        """Keys hit since the last transaction; the reading side adds, lossy."""
        self.ended: dict[Key, bytes] = {}
        """Index entries seen to be expired or to point nowhere, to be removed with the next transaction."""
        forks.join(self)

    # puts

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        with self._lock:
            self._check_open()
            self._lost.clear()
            results = [self._put(frame, deadline) for frame, deadline in zip(frames, deadlines, strict=True)]
            self._commit()
            if self._lost:
                results = [result or self._lost.get(frame.key) for frame, result in zip(frames, results, strict=True)]
            # Each segment that waits for its sync keeps a file descriptor.
            if self._unsynced_bytes >= self._settings.sync_every_bytes or len(self._unsynced) > _UNSYNCED:
                try:
                    self._sync()
                except TierError as error:  # nobody asked for it here; `flush` raises
                    self._events.append(Failed("disk", str(error)))
        for frame, result in zip(frames, results, strict=True):
            if result is not None:
                self._events.append(Refused(frame.key, "disk", result))
        self._tell()
        return results

    def _put(self, frame: Frame, deadline: Deadline) -> RefuseReason | None:
        parts: list[Buffer] = [frame.prefix(), frame.payload]
        length = len(parts[0]) + frame.size
        if length > self._settings.limit_bytes:
            return RefuseReason.TOO_LARGE
        if self._quotas and length > self._quotas.get(owner_of(frame.header.tenant), length):
            return RefuseReason.QUOTA
        try:
            segment = self._room(length)
            offset, length = segment.append(parts)
        except NoRoomError as error:
            self._events.append(Failed("disk", f"no room in {self._layout.root}: {error}", frame.key))
            return RefuseReason.DISK_FULL
        except OSError as error:
            return self._refusal(error)
        except TierError as error:
            self._events.append(Failed("disk", str(error), frame.key))
            return RefuseReason.DISK_FULL if is_full(error) else RefuseReason.TIER_DOWN
        self._unsynced_bytes += length
        record = Record.of(frame, deadline, segment.number, offset, length, self._clock)
        self._pending.append(Pending(frame.key, record, parts, None))
        return None

    def _refusal(self, error: OSError) -> RefuseReason:
        self._events.append(Failed("disk", f"cannot write to {self._layout.root}: {error}"))
        return refusal(error)

    def _lose(self, pending: list[Pending], reason: RefuseReason, detail: str) -> None:
        self._events.append(Failed("disk", detail))
        self._lost.update({entry.key: reason for entry in pending if entry.replaces is None})
        self._pending = []

    def _commit(self) -> None:
        """Make everything pending visible; what could not be is in `_lost`."""
        self._index.follow()
        for _ in range(3):
            waiting = [(table, list(table.waiting.items())) for table in self._maps if table.waiting]
            batch = Batch(self._pending, list(self.touched), dict(self.ended), waiting)
            if not any(batch):
                return
            self._pending = []
            try:
                apply = partial(batch.apply, unlink=self._unlink, outdated=self._outdated, quotas=self._quotas)
                done = self._index.update(apply)
            except SegmentGoneError:
                self._abandon()
                try:
                    for entry in batch.pending:
                        self._append(entry)
                except (NoRoomError, OSError, TierError) as error:
                    return self._lose(batch.pending, RefuseReason.DISK_FULL, f"cannot write again: {error!r}")
                continue
            except TierError as error:
                reason = RefuseReason.DISK_FULL if is_full(error) else RefuseReason.TIER_DOWN
                return self._lose(batch.pending, reason, str(error))
            self.touched.difference_update(batch.touched)
            for key in batch.ended:
                self.ended.pop(key, None)
            for table, entries in waiting:
                table.written(entries)
            self._events += [Expired(key, "disk") for key in done.ended]
            self._events += [Evicted(key, "disk", EvictReason.QUOTA, length) for key, length in done.evicted]
            return
        self._lose(self._pending, RefuseReason.TIER_DOWN, "segments vanish faster than they are written")

    def _append(self, entry: Pending) -> None:
        length = sum(memoryview(part).nbytes for part in entry.parts)
        segment = self._room(length)
        offset, length = segment.append(entry.parts)
        self._unsynced_bytes += length
        record = replace(entry.record, segment=segment.number, offset=offset, length=length)
        self._pending.append(entry._replace(record=record))

    # segments

    def _room(self, length: int) -> Segment:
        """The segment that takes a frame of `length` bytes. Raises `NoRoomError`, `OSError`, `TierError`."""
        if self._segment is not None and self._segment.room(length):
            return self._segment
        self._commit()
        self._retire()
        size = -(-max(self._segment_bytes, length) // _PAGE) * _PAGE
        size = max(length, min(size, self._settings.limit_bytes))
        self._layout.segments.mkdir(mode=0o700, exist_ok=True)
        number = new_number()
        self._files_changed = True
        segment = Segment(self._layout.segment(number), number)
        try:
            survivors, doomed = self._reclaim(segment, size)
            self._let_go()
            segment.allocate(size)
        except (NoRoomError, OSError, TierError):
            segment.path.unlink(missing_ok=True)
            segment.close()
            self._forget(number)
            raise
        self._segment = segment
        for entry in survivors:
            if segment.room(sum(len(part) for part in entry.parts) + length):
                self._append(entry)
        if survivors:
            self._commit()
        self._forget(*doomed)
        return segment

    def _let_go(self) -> None:
        """An unlinked file takes space for as long as it is mapped or open; it needs no sync any more."""
        self._unmap()
        for gone in [segment for segment in self._unsynced if not os.fstat(segment.fd).st_nlink]:
            self._unsynced.remove(gone)
            gone.close()

    def _reclaim(self, segment: Segment, size: int) -> tuple[list[Pending], list[int]]:
        """Register a new segment and make room for it; the frames to be copied into it, read to memory."""
        reclaimer = Reclaimer(self._layout, self._clock, self._order, segment.number, self._weights)

        survivors: list[Pending] = []

        def change(tables: Tables) -> Plan:
            ledger = Ledger(tables)
            ledger.begin(segment.number, size)
            space = os.statvfs(self._layout.root)
            spare = space.f_bavail * space.f_frsize - self._settings.free_space_floor - _INDEX_RESERVE
            with reclaimer:
                plan = reclaimer.make_room(ledger, size, self._settings.limit_bytes, spare)
                plan.unlink.update(ledger.save())
                survivors[:] = [copy for frame in plan.survivors if (copy := copy_of(self._layout, frame))]
                self._unlink(plan.unlink)
            return plan

        plan = self._index.update(change)
        self._events += [Evicted(frame.key, "disk", EvictReason.SPACE, frame.record.length) for frame in plan.evicted]
        return survivors, plan.doomed

    def _forget(self, *numbers: int) -> None:
        """Remove segments, and what may still point into them, from the index."""

        if numbers:
            self._index.update(forgetting(numbers))

    def _retire(self) -> None:
        """Cut the current segment to what was written and leave it to all processes."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        self._unsynced.append(segment)
        used = segment.seal()

        def change(tables: Tables) -> None:
            ledger = Ledger(tables)
            known = ledger.usage(segment.number) is not None
            ledger.seal(segment.number, used)
            emptied = ledger.save()
            self._unlink(emptied if known else [segment.number])
            segment.unlock()  # not later: the next transaction may need its room

        self._index.update(change)

    def _abandon(self) -> None:
        """The current segment is no longer in the index: its file has no readers to come."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.path.unlink(missing_ok=True)
            segment.close()

    def _unlink(self, numbers: Iterable[int]) -> None:
        """Within the transaction that forgets the segments: whoever sees their bytes as free finds them free. A process
        that dies in between leaves entries of a missing file, which are misses until they are swept up."""
        for number in numbers:
            self._layout.segment(number).unlink(missing_ok=True)
            self._files_changed = True

    # drops, flushes

    def drop(self, keys: Iterable[Key], only: bytes | None = None) -> int:
        """Forget keys (if their entry still is `only`)."""
        wanted = list(keys)

        def change(tables: Tables) -> int:
            ledger = Ledger(tables)
            count = sum(ledger.drop(key, only) is not None for key in wanted)
            self._unlink(ledger.save())
            return count

        with self._lock:
            self._check_open()
            self._index.follow()
            return self._index.update(change)

    def note_uses(self) -> None:
        """Write recency now; skipped when a put is at work, which does it anyway."""
        if self._lock.acquire(blocking=False):
            try:
                self._commit()
            finally:
                self._lock.release()

    def flush(self) -> None:
        """Everything accepted is on the disk when this returns. Raises `TierError`."""
        with self._lock:
            self._check_open()
            self._commit()
            self._sync()
        self._tell()

    def _sync(self) -> None:
        segments = [*self._unsynced, *([self._segment] if self._segment else [])]
        try:
            for segment in segments:
                getattr(os, "fdatasync", os.fsync)(segment.fd)
            if self._files_changed:
                self._layout.sync()
                self._files_changed = False
        except OSError as error:
            raise TierError(f"cannot flush {self._layout.root}: {error}") from error
        finally:
            for segment in self._unsynced:
                segment.close()
            self._unsynced, self._unsynced_bytes = [], 0
        self._index.sync()

    def start(self) -> None:
        """Take back what crashed processes left."""
        reclaimer = Reclaimer(self._layout, self._clock, self._order, -1)

        def change(tables: Tables) -> None:
            ledger = Ledger(tables)
            with reclaimer:
                plan = reclaimer.collect_dead(ledger)
                self._unlink([*plan.unlink, *ledger.save()])

        self._index.update(change)

    def move_out(self, numbers: Iterable[int], erased: Callable[[Placed], bool]) -> list[Placed]:
        """Copy what is not erased out of these segments, then remove them with all their bytes; the erased frames."""
        gone: list[Placed] = []
        with self._lock:
            self._check_open()
            self._commit()
            self._retire()
            for number in numbers:
                while True:
                    placed = self._index.read(placed_in(number))
                    for frame in placed:
                        if not erased(frame):
                            try:
                                if copy := copy_of(self._layout, frame):
                                    self._append(copy)
                            except (NoRoomError, OSError) as error:  # erasing goes before keeping
                                self._events.append(Failed("disk", f"not kept while erasing: {error}", frame.key))
                    self._commit()
                    removed = self._index.update(removing(number, {frame.raw for frame in placed}))
                    if removed is not None:
                        break
                gone += [frame for frame in removed if erased(frame)]
                self._unlink([number])
            self._retire()
        self._tell()
        return gone

    # life

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("the disk tier was closed")

    def _tell(self) -> None:
        """Emit outside of the lock: a listener may call the tier."""
        events, self._events = self._events, []
        for event in events:
            self._emit(event)

    def close(self) -> bool:
        """Flush, give the segment back; False when it was closed before."""
        with self._lock:
            if self._closed:
                return False
            try:
                self._commit()
                self._retire()
                self._sync()
            finally:
                self._closed = True
                self._index.release()
        self._tell()
        return True

    def before_fork(self) -> None:
        """See `forks`."""
        self._lock.acquire()

    def after_fork(self, child: bool) -> None:
        """The child starts a segment of its own; the parent's stays the parent's."""
        if not child:
            self._lock.release()
            return
        self._lock = threading.RLock()
        for segment in [*self._unsynced, *([self._segment] if self._segment else [])]:
            segment.close()
        self._segment, self._unsynced, self._unsynced_bytes, self._pending, self._events = None, [], 0, [], []
        self.touched.clear()
        self.ended.clear()
        for table in self._maps:
            table.waiting.clear()
