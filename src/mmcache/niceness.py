"""A computation that gives way: its thread's share of busy cores is lowered while it runs, by Linux's `nice`.

Slots bound how many compute; they cannot say who gets a core when there are fewer free cores than slots, as on a busy
machine, or in a container with a part of a core. A thread of nice 10 gets a tenth of the share of one of nice 0
wherever both want to run, and all of what is idle.

Two costs. A lowered thread that holds Python's lock gives that way too, so whoever wants the lock waits for it: for
models, which compute without the lock, that is little. And threads keep the niceness of the thread that started them:
a pool that a model makes at its first call stays lowered if that call was, so call the model once before.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mmcache.model.errors import SettingsError


def check_nice(nice: int) -> None:
    """Raises `SettingsError` unless threads can be lowered to `nice` (0…19) and raised again here."""
    if not 0 <= nice <= 19:
        raise SettingsError(f"batch_nice is 0 (off) to 19, not {nice}")
    if nice and not sys.platform.startswith("linux"):
        raise SettingsError("batch_nice needs Linux, where each thread has a niceness of its own; leave it 0")
    denied: list[OSError] = []

    def lower_and_raise() -> None:
        thread = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        try:
            os.setpriority(os.PRIO_PROCESS, thread, max(before, nice))
            os.setpriority(os.PRIO_PROCESS, thread, before)
        except OSError as error:
            denied.append(error)

    if nice:
        trial = threading.Thread(target=lower_and_raise)  # which ends, whatever became of it
        trial.start()
        trial.join()
    if denied:
        raise SettingsError(
            "batch_nice lowers threads, and this process may not raise them again; give it CAP_SYS_NICE, or a limit of "
            "`ulimit -e 20`, or leave batch_nice 0"
        ) from denied[0]


@contextmanager
def giving_way(nice: int) -> Iterator[None]:
    """Inside, this thread has niceness `nice` at least. What `check_nice` allowed."""
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread) if nice else nice
    if before >= nice:
        yield
        return
    os.setpriority(os.PRIO_PROCESS, thread, nice)
    try:
        yield
    finally:
        with suppress(OSError):  # rights may have been given up since the check: it stays as it is
            os.setpriority(os.PRIO_PROCESS, thread, before)
