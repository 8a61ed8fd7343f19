"""How a live screen ends: Ctrl-C, SIGTERM and SIGHUP all leave the terminal as it was."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STEP_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Pause = Callable[[float], bool]
"""Waits so many seconds; whether to go on."""


@contextmanager
def ended_by_signal() -> Iterator[Pause]:
    """Inside, a signal ends the next pause. It raises nothing: what is raised wherever the program happens to be may
    be swallowed there (by a finaliser, by a callback), and then nobody hears of it. Raises `KeyboardInterrupt` at the
    end, where there was one."""
    heard: list[int] = []
    old = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in _SIGNALS}

    def pause(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not heard and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_SECONDS))
        return not heard

    try:
        yield pause
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt
