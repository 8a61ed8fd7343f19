"""`Life`: the threads of a prefetcher, and its status file.

They end with it: by `close`, with the process, or when it is forgotten; so nothing in here holds it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from mmcache.prefetch.status import remove
from mmcache.prefetch.work import Work

CLOSING_SECONDS = 2.0
"""What is under way is waited for so long when it is told to stop."""


class Doer(Protocol):
    """Who decides, and does the work."""

    def turn(self) -> float:
        """Look what there is to do; seconds until the next time."""

    def do(self, work: Work) -> None:
        """Do one piece of it."""


class Life:
    """Started lazily; ended once."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of a file that is taken away at the end."""
        self._stop = threading.Event()
        self._inbox: queue.SimpleQueue[tuple[weakref.ref[Doer], Work] | None] = queue.SimpleQueue()
        self._watching: threading.Thread | None = None
        self._working: list[threading.Thread] = []
        self._path, self._owner = path, os.getpid()

    def watch(self, doer: Doer) -> None:
        """Start the thread that calls `doer.turn`. Raises `RuntimeError` where none can be started."""
        thread = threading.Thread(
            target=_watch, args=(weakref.ref(doer), self._stop), name="mmcache-prefetch", daemon=True
        )
        thread.start()
        self._watching = thread

    def hand(self, doer: Doer, work: Work, most: int) -> None:
        """Have `work` done in one of at most `most` threads."""
        self._working = [thread for thread in self._working if thread.is_alive()]  # a model may have ended one
        if len(self._working) < most:
            thread = threading.Thread(
                target=_work, args=(self._inbox, self._stop), name="mmcache-prefetch-work", daemon=True
            )
            thread.start()
            self._working.append(thread)
        self._inbox.put((weakref.ref(doer), work))

    def end(self) -> None:
        """Idempotent. In another process than its own it leaves everything as it is."""
        if self._owner != os.getpid():
            return
        self._stop.set()
        for _ in self._working:
            self._inbox.put(None)
        for thread in (self._watching, *self._working):
            if thread is not None and thread is not threading.current_thread():
                thread.join(CLOSING_SECONDS)
        if self._path is not None:
            remove(self._path)


def _watch(doer: weakref.ref[Doer], stop: threading.Event) -> None:
    while not stop.is_set():
        watched = doer()
        if watched is None:
            return
        pause = watched.turn()
        del watched
        stop.wait(pause)


def _work(inbox: queue.SimpleQueue[tuple[weakref.ref[Doer], Work] | None], stop: threading.Event) -> None:
    while (given := inbox.get()) is not None:
        doer = given[0]()
        if doer is None or stop.is_set():
            return
        doer.do(given[1])
        del doer, given


@contextmanager
def lowered(work: Work, nice: int) -> Iterator[None]:
    """Inside, this thread gives way to others, until `raised`."""
    if not nice:
        yield
        return
    thread = threading.get_native_id()
    with suppress(OSError):
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(before, nice))
        work.thread, work.niceness = thread, before
    try:
        yield
    finally:
        raised(work)


def raised(work: Work) -> None:
    """Somebody waits for `work`: it gives way no more."""
    thread, work.thread = work.thread, 0
    if thread and sys.platform.startswith("linux"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, work.niceness)
