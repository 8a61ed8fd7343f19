"""`WriteBehind`: a tier whose puts return at once and are written by one thread; bounded, ordered, flushable."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from mmcache import forks
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import TierClosedError
from mmcache.model.event import Event, Failed, MissReason, Refused, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier, TierStats
from mmcache.tiers.owed import OwedDrops

Done = Callable[[], None]


class WriteBehind:
    """Wraps a tier. Reads see pending writes; a drop waits for the write it races with."""

    fork_order = 0

    def __init__(
        self,
        inner: Tier,
        *,
        backlog_bytes: int,
        emit: Callable[[Event], None] = lambda event: None,
        clock: Clock | None = None,
        catch_up: Callable[[], int] = lambda: 0,
        sequence: Callable[[], int] = lambda: 0,
        mark: Callable[[Frame], Frame] = lambda frame: frame,
    ) -> None:
        """`mark`: what a frame is to carry on its way, made when it is put."""
        self.name = inner.name
        self.inner = inner
        self.refused = 0
        """Puts refused because the backlog was full."""
        self._backlog_bytes = backlog_bytes
        self._emit = emit
        self._clock = clock or SystemClock()
        self._catch_up, self._sequence, self._mark = catch_up, sequence, mark
        self.caught_up = 0
        """Invalidations up to this sequence number were applied before the running batch was taken."""
        self._closed = False
        self.owed = OwedDrops(inner.drop)
        self._reset()
        forks.join(self)
        _alive.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._pending: dict[Key, tuple[Frame, Deadline, Done | None]] = {}
        self._writing: dict[Key, tuple[Frame, Deadline, Done | None]] = {}
        self._pending_bytes = 0
        self._last: set[Key] = set()
        """Keys of the last batch, until invalidations by other processes were looked for after it."""
        self._thread: threading.Thread | None = None

    def put_then(
        self, frame: Frame, deadline: Deadline, done: Done | None, unless: Callable[[], bool] = lambda: False
    ) -> RefuseReason | None:
        """Queue one frame; `done` is called when it is readable by other processes, or has failed, or is refused.
        `unless`: asked under the lock that `drop` takes, whether what is put was invalidated meanwhile."""
        reason: RefuseReason | None = None
        with self._changed:
            if self._closed:
                raise TierClosedError(f"the {self.name} tier is closed; open a new Cache")
            if unless():
                reason = RefuseReason.INVALIDATED
            elif self._pending_bytes + frame.size > self._backlog_bytes and self._pending:
                self.refused += 1
                reason = RefuseReason.BACKLOG
            else:
                old = self._pending.pop(frame.key, None)
                if old is not None:
                    self._pending_bytes -= old[0].size
                    done = _both(old[2], done)  # what waits for the older value waits for this one
                self._queue(self._mark(frame), deadline, done)
        if reason is not None:
            # An older value must not outlive its replacement that was refused.
            self.drop([frame.key])
            if done is not None:
                done()
        return reason

    def promote(self, frame: Frame, deadline: Deadline, unless: Callable[[], bool]) -> bool:
        """Queue what a lower tier holds, where there is room for it; never in place of anything newer. `unless`: as for
        `put_then`."""
        with self._changed:
            full = self._pending_bytes + frame.size > self._backlog_bytes
            if self._closed or full or frame.key in self._pending or frame.key in self._writing or unless():
                return False
            self._queue(frame, deadline, None)
            return True

    def _queue(self, frame: Frame, deadline: Deadline, done: Done | None) -> None:
        self._pending[frame.key] = (frame, deadline, done)
        self._pending_bytes += frame.size
        self._changed.notify_all()
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._run, name=f"mmcache-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending: the next put tries again
            self._emit(Failed(self.name, f"writes wait for a thread: {error}"))
        else:
            self._thread = thread

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        return [self.put_then(frame, deadline, None) for frame, deadline in zip(frames, deadlines, strict=True)]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._pending) or self._closed)
                if not self._pending:
                    return
            # Before: what was invalidated meanwhile is not written. After: nor does it stay, had it been on its way.
            for _ in range(100):
                if self._write_batch(self._catch_up()):
                    break
            else:
                self._write_batch(None)
            self._catch_up()
            with self._changed:
                self._last = set()
                self._changed.notify_all()

    def _write_batch(self, caught_up: int | None) -> bool:
        """Write what is pending; False when more was invalidated than `caught_up` says (None = whatever it was).

        So all that is taken is older than the invalidations that the tier may find afterwards, and none is newer.
        """
        with self._write_lock:
            with self._changed:
                if caught_up is not None:
                    if self._sequence() != caught_up:
                        return False
                    self.caught_up = caught_up
                batch = self._writing = self._pending
                self._pending, self._pending_bytes = {}, 0
                self._last = set(batch)
            try:
                frames, deadlines = [f for f, _, _ in batch.values()], [d for _, d, _ in batch.values()]
                for key, reason in zip(batch, self.inner.put(frames, deadlines), strict=True):
                    if reason is None:
                        self.owed.forgive(key)
                    elif reason is not RefuseReason.INVALIDATED:  # then what the tier holds is newer
                        self.owed.refused(key)
                    if reason is not None:
                        self._emit(Refused(key, self.name, reason))
            except Exception as error:  # noqa: BLE001 - whatever a tier raises, the thread goes on
                self.owed.add(batch)
                self._emit(Failed(self.name, f"{len(batch)} writes lost: {error!r}"))
            with self._changed:
                self._writing = {}
                self._changed.notify_all()
        for _, _, done in batch.values():  # without the lock: `done` may itself drop, or publish
            try:
                if done is not None:
                    done()
            except Exception as error:  # noqa: BLE001 - whatever it tells may raise; the thread goes on
                self._emit(Failed(self.name, f"what waited for a write failed: {error!r}"))
        return True

    def forget(self, keys: Collection[Key] | None, released: list[Done]) -> set[Key]:
        """Other processes invalidated `keys` (None = all): drop what is on its way; which may have been written.

        To `released` are added the `done` of what was waiting: for the caller to call without locks of its own, because
        they may look for invalidations themselves.
        """
        with self._changed:
            if keys is None:
                keys = [*self._pending, *self._last]
            waiting = [key for key in keys if key in self._pending]
            written = self._last.intersection(keys)
        if waiting or written:
            self._drop({*waiting, *written}, released)
        return written

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`; pending writes are visible."""
        if not self._pending and not self._writing:
            return self._get_written(keys)
        with self._changed:
            waiting = {key: self._pending.get(key) or self._writing.get(key) for key in keys}
        below = iter(self._get_written([key for key in keys if waiting[key] is None]))
        found: list[Found | MissReason] = []
        for key in keys:
            held = waiting[key]
            if held is None:
                found.append(next(below))
            elif held[1] is not None and held[1] <= self._clock.monotonic():
                found.append(MissReason.EXPIRED)
            else:
                found.append(Found(held[0], held[1], verified=True))
        return found

    def _get_written(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        if not (owed := self.owed.settle(keys)):
            return self.inner.get(keys)
        found = iter(self.inner.get([key for key in keys if key not in owed]))
        return [MissReason.TIER_DOWN if key in owed else next(found) for key in keys]

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`."""
        released: list[Done] = []
        try:
            return self._drop(list(keys), released)
        finally:
            for done in released:
                done()

    def _drop(self, keys: Collection[Key], released: list[Done]) -> int:
        waiting = 0
        with self._changed:
            for key in keys:
                if (held := self._pending.pop(key, None)) is not None:
                    waiting += 1
                    self._pending_bytes -= held[0].size
                    if held[2] is not None:
                        released.append(held[2])
        with self._write_lock:
            return max(waiting, self.inner.drop(keys))

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`; pending writes are written first."""
        self._drain()
        return self.inner.scan()

    def _drain(self) -> None:
        while True:
            with self._changed:
                if self._pending:
                    self._ensure_thread()
                if self._changed.wait_for(lambda: not (self._pending or self._writing or self._last), timeout=1.0):
                    return

    def flush(self) -> None:
        """Return when every accepted put is durable."""
        self._drain()
        self.inner.flush()

    def stats(self) -> TierStats:
        """The inner tier's gauges and the backlog's."""
        inner = self.inner.stats()
        backlog: dict[str, int | float | str] = {
            "pending": len(self._pending) + len(self._writing),
            "pending_bytes": self._pending_bytes,
            "refused_backlog": self.refused,
        }
        return TierStats(inner.blocks, inner.bytes, inner.limit_bytes, inner.detail | backlog)

    def finish(self) -> None:
        """Wait until what is pending is written, unless closed."""
        if not self._closed:
            self._drain()

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """The writing thread is not in the child, and what was pending is the parent's to write."""
        if child:
            self._reset()

    def close(self) -> None:
        """Write what is pending, make it durable, release the inner tier."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()
        if self._pending:  # there was no thread to be had
            self._write_batch(None)
            self._catch_up()
        self.inner.close()


def _both(one: Done | None, other: Done | None) -> Done | None:
    if one is None or other is None:
        return one or other

    def both() -> None:
        one()
        other()

    return both


_alive: weakref.WeakSet[WriteBehind] = weakref.WeakSet()


@atexit.register
def _finish() -> None:  # a program that forgets to close its cache must not lose what it stored last
    for tier in list(_alive):
        tier.finish()
