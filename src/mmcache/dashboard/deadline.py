"""How long one question may take: its statements are interrupted from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mmcache.dashboard.counting import View

AGAIN_SECONDS = 0.1


def within(seconds: float, cursor: Any, task: Callable[[View], Any]) -> Callable[[View], Any]:
    """The task, whose statements raise `duckdb.InterruptException` once it takes longer.

    The time begins when the task does, not while it waits for a thread. An interrupt between two statements is of no
    effect to the second: so there are several. It needs no event loop, which may have ended.
    """

    def timed(view: View) -> Any:
        done, ending = threading.Event(), threading.Lock()

        def watch() -> None:
            wait = seconds
            while not done.wait(wait):
                wait = AGAIN_SECONDS
                with ending:  # else it may be closed by now
                    if not done.is_set():
                        cursor.interrupt()

        threading.Thread(target=watch, name="mmcache-dashboard-deadline", daemon=True).start()
        try:
            return task(view)
        finally:
            with ending:
                done.set()

    return timed
