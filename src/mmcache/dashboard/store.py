"""`Store`: spans and points in DuckDB. One thread writes, in transactions of all that waits; readers have cursors.

A future of `put` is done when what it put is on the disk: whoever was told so finds it after a crash.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duckdb

from mmcache.dashboard import retention
from mmcache.dashboard.closing import Slices, close, rollback
from mmcache.dashboard.columns import columns_of
from mmcache.dashboard.counting import View
from mmcache.dashboard.dictionary import Dictionary, insert
from mmcache.dashboard.graph_kept import Views
from mmcache.dashboard.points import Point, Points
from mmcache.dashboard.readers import Readers
from mmcache.dashboard.schema import TABLES, opened
from mmcache.dashboard.seen import Seen
from mmcache.dashboard.taken import Taken
from mmcache.hotkeys.view import HotView
from mmcache.model.errors import DashboardError, MMCacheError
from mmcache.settings import DashboardSettings

BATCH = 50_000
"""Spans of one transaction, about."""
IDLE_SECONDS = 1.0
SIZE_SECONDS = 10.0
"""How often the size is looked at."""

_log = logging.getLogger("mmcache.dashboard")


@dataclass(slots=True)
class Job:
    """What waits for the writer: spans, points, or something to be done between two transactions."""

    spans: Sequence[Taken]
    points: Sequence[Point]
    task: Callable[[], Any] | None
    done: Future[Any]


@dataclass
class Came:
    """What has been written since the start; only the writer changes it."""

    spans: int = 0
    again: int = 0
    """Sent once more: the first stands."""
    lookups: float = 0.0
    hits: float = 0.0
    newest: float = 0.0
    changes: int = 0
    """Counts all changes of the store, for whoever keeps answers."""


class Store:
    """Opens at once; `close()` writes what waits. Raises `DashboardError`, `FormatVersionError`."""

    def __init__(self, settings: DashboardSettings, notice: Callable[[str], None] = _log.warning) -> None:
        self.settings = settings
        self._connection = opened(settings.store, notice)
        self.known = Dictionary.read(self._connection)
        self.slices = Slices.read(self._connection)
        self.slices.newest = min(self.slices.newest, int(time.time()))
        self.points = Points.read(self._connection)
        self.limit_bytes = settings.limit_bytes
        self.came = Came()
        self._seen = Seen.read(self._connection)
        self.views = Views.read(self._connection, time.time())
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._closed = self._broken = False
        self._readers = Readers()
        self._size_due = self._rests_until = 0.0
        self._floors = retention.floors(self._connection)
        self._floor_us = retention.floor_us(self._connection)
        self._writer = threading.Thread(target=self._run, name="mmcache-dashboard-writer", daemon=True)
        self._writer.start()

    def put(self, spans: Sequence[Taken] = (), points: Sequence[Point] = ()) -> Future[Any]:
        """Done when written. Raises `DashboardError` (503) where too much waits."""
        return self._enqueue(spans, points, None)

    def show(self, views: Sequence[HotView]) -> Future[Any]:
        """Views of hot keys; done when written. Raises `DashboardError` (503)."""
        return self.between(lambda: self.views.take(self._connection, views, self.limit_bytes))

    def between(self, task: Callable[[], Any]) -> Future[Any]:
        """Something the writer does between two transactions."""
        return self._enqueue((), (), task)

    def _enqueue(self, spans: Sequence[Taken], points: Sequence[Point], task: Callable[[], Any] | None) -> Future[Any]:
        job = Job(spans, points, task, Future())
        size = len(spans) + len(points)
        with self._lock:
            if self._closed:
                raise DashboardError("the dashboard is stopping; send it again", status=503, code="stopping")
            if self._waiting and self._waiting + size > self.settings.queue_spans:
                raise DashboardError("too much waits to be written; send it again later", status=503, code="full")
            self._waiting += size
            self._queue.put(job)
        return job.done

    def cursor(self) -> Any:
        """For one reader, who closes it."""
        try:
            return self._connection.cursor()
        except duckdb.Error as error:
            raise DashboardError("the store is closed", status=503, code="stopping") from error

    def read(self, cursor: Any, task: Callable[[View], Any]) -> Any:
        """The task's answer, of one state of the store; closes the cursor."""
        self._readers.enter()
        try:
            while True:
                known = self.known
                cursor.execute("BEGIN")
                slices = Slices.read(cursor)  # of the state that it sees, whatever the writer closes meanwhile
                if known is self.known:
                    return task(View(cursor, known, slices, self._floors))
                cursor.execute("ROLLBACK")  # cleared meanwhile
        finally:
            cursor.close()
            self._readers.leave()

    @property
    def floor_us(self) -> int:
        """Spans of before are refused: they would be the first to go."""
        oldest = int((time.time() - self.settings.kept_days * 86400) * 1e6)
        return max(oldest, self._floor_us or oldest)

    def limit(self, size: int) -> Future[Any]:
        """Keep at most so many bytes, from now until the dashboard ends."""

        def change() -> int:
            self.limit_bytes = size
            return self._keep()

        return self.between(change)

    def clear(self) -> Future[Any]:
        """Forget everything."""
        return self.between(self._clear)

    def close(self) -> None:
        """Write what waits, and end."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._writer.join()
        self._connection.close()

    def size(self) -> int:
        """Bytes in use."""
        return retention.used(self._connection.cursor())

    # The writer's own.

    def _run(self) -> None:
        ending = False
        while not ending:
            jobs = self._next()
            ending = None in jobs
            work = [job for job in jobs if job is not None]
            writes = [job for job in work if job.task is None]
            if writes:
                self._write(writes)
            for job in work:
                if job.task is not None:
                    self._settle([job], job.task)
            if not ending:
                self._tend()

    def _next(self) -> list[Job | None]:
        try:
            jobs = [self._queue.get(timeout=0.0 if self._tending() else IDLE_SECONDS)]
        except queue.Empty:
            return []
        count = 0
        while jobs[-1] is not None and jobs[-1].task is None and count < BATCH:
            count += len(jobs[-1].spans) + len(jobs[-1].points)
            try:
                jobs.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return jobs

    def _write(self, jobs: Sequence[Job]) -> None:
        self._settle(jobs, lambda: self._transaction(jobs))

    def _settle(self, jobs: Sequence[Job], task: Callable[[], Any]) -> None:
        """Run it, and tell those who wait. Whatever fails must not end the writer."""
        try:
            said, failure = task(), None
        except Exception as error:  # noqa: BLE001 - a damaged file, a full disk, a bug: the senders are told
            said, failure = None, error
            _log.warning("the store could not be written: %s", error)
            if self._broken or isinstance(error, duckdb.FatalException):
                self._reopen()
        with self._lock:
            self._waiting -= sum(len(job.spans) + len(job.points) for job in jobs)
        for job in jobs:
            if not job.done.set_running_or_notify_cancel():
                continue
            if failure is None:
                job.done.set_result(said)
            else:
                problem = DashboardError("the store cannot be written now", status=503, code="unwritable")
                problem.__cause__ = failure
                job.done.set_exception(problem)

    def _reopen(self) -> None:
        """DuckDB takes nothing more after a fatal error: what is on the disk is opened again."""
        if self.settings.store == ":memory:":
            return
        self._broken = True  # until it is open again, each failure tries
        try:
            self._connection.close()
            self._connection = opened(self.settings.store, _log.warning)
            self.known, self.slices = Dictionary.read(self._connection), Slices.read(self._connection)
            self.points, self._seen = Points.read(self._connection), Seen.read(self._connection)
            self._broken = False
        except (duckdb.Error, MMCacheError, OSError) as error:
            _log.error("the store could not be opened again: %s", error)

    def _transaction(self, jobs: Sequence[Job]) -> None:
        all_spans = [span for job in jobs for span in job.spans]
        spans = self._seen.new(all_spans)
        points = [point for job in jobs for point in job.points]
        connection, saved = self._connection, []
        opens = self.slices.opens({span.start_us // 1_000_000 for span in spans})
        connection.execute("BEGIN")
        try:
            if spans:
                insert(connection, "spans", columns_of(spans, self.known))
                saved = self.known.save(connection)
                for width, start in opens:
                    connection.execute("INSERT INTO unclosed VALUES (?, ?)", [width, start])
            if points:
                self.points.write(connection, points)
            newest = max((span.start_us for span in spans), default=0)
            connection.execute("COMMIT")
        except BaseException:
            rollback(connection)
            self._seen.forget(spans)
            self.points.forget()
            raise
        # A sender whose clock is ahead would have slices closed that others still send spans of, over and over.
        self.slices.opened(opens, min(newest // 1_000_000, int(time.time())))
        for part, count in saved:
            part.saved = count
        self._own()
        lookups = [span for span in spans if span.lookup]
        self.came.spans += len(spans)
        self.came.again += len(all_spans) - len(spans)
        self.came.lookups += sum(span.weight for span in lookups)
        self.came.hits += sum(span.weight for span in lookups if span.hit)
        self.came.newest = max(self.came.newest, newest / 1e6)
        self.came.changes += 1

    def _own(self) -> None:
        """The log is made anew after each checkpoint, by the process' mask."""
        log = f"{self.settings.store}.wal"
        if self.settings.store != ":memory:":
            with suppress(OSError):  # it is gone, or of a disk without modes: what is written is written
                if os.stat(log).st_mode & 0o077:
                    os.chmod(log, 0o600)

    def _tending(self) -> bool:
        return self.slices.due() is not None and time.monotonic() >= self._rests_until

    def _tend(self) -> None:
        """What is done while nobody waits: slices are closed, what is too much goes."""
        try:
            until = time.monotonic() + 0.25
            while self._tending() and (due := self.slices.due()) is not None:
                close(self._connection, *due)
                self.slices.closed(*due)
                if time.monotonic() > until:
                    break
            if time.monotonic() >= self._size_due:
                self._size_due = time.monotonic() + SIZE_SECONDS
                self._keep()
        except Exception as error:  # noqa: BLE001 - it must not end the writer: senders would wait for ever
            self._rests_until = time.monotonic() + SIZE_SECONDS
            _log.warning("the store could not be tended: %s", error)

    def _keep(self) -> int:
        if (size := retention.used(self._connection)) <= self.limit_bytes:
            return size
        with self._readers.out(4 * self.settings.query_seconds) as alone:
            if not alone:
                return size  # later
            kept = retention.keep(self._connection, self.limit_bytes, self.slices)
        if kept.floor_us is not None:
            self._floor_us = kept.floor_us
            self._floors = retention.floors(self._connection)
            self.came.changes += 1
        return kept.bytes

    def _clear(self) -> int:
        self._connection.execute("BEGIN")
        try:
            for name in TABLES:
                if name != "store":
                    self._connection.execute(f"DELETE FROM {name}")
            self._connection.execute("COMMIT")
        except BaseException:
            rollback(self._connection)
            raise
        self.known, self.slices, self.points, self._seen = Dictionary(), Slices(), Points(), Seen()
        self.views.forget()
        self._floor_us, self._floors = None, {}
        self.came.changes += 1
        self._connection.execute("CHECKPOINT")
        return self.size()
