"""The live screen of `mmcache top`: one thread reads the dashboard, this one draws and hears the keyboard."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING

from mmcache.cli.ending import ended_by_signal
from mmcache.cli.top_view import AXES, Look, draw
from mmcache.model.errors import DashboardError

if TYPE_CHECKING:
    from mmcache.cli.top_feed import Feed, Snapshot

_DRAW_SECONDS = 0.25
"""Between two looks at what came and at the size of the window."""
_PATIENCE_SECONDS = 3.0
"""A look that takes longer is told of."""

Pressed = Callable[[float], str]
"""Waits so many seconds for keys."""


class _Reader:
    """Reads the dashboard every `interval` seconds, at once when the axis changes; tells what failed."""

    def __init__(self, feed: Feed, by: str, interval: float, minutes: float, end: float | None) -> None:
        self._feed, self._interval, self._minutes, self._end = feed, interval, minutes, end
        self._changed = Condition()
        self._by, self._asked, self._over, self.paused = by, True, False, False
        self.latest: Snapshot | None = None
        self._trouble, self._began = "", 0.0
        self._thread = Thread(target=self._run, name="mmcache-top", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why there is nothing new; empty = there is."""
        waited = time.monotonic() - self._began if self._began else 0.0
        return self._trouble or (f"still waiting for an answer, {waited:.0f} s" if waited >= _PATIENCE_SECONDS else "")

    def turn(self) -> None:
        """To the next axis."""
        with self._changed:
            self._by = AXES[(AXES.index(self._by) + 1) % len(AXES)]
            self._asked = True
            self._changed.notify()

    def close(self) -> None:
        """Stop; a read under way is left to end by itself."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._asked and not self._over:
                    self._changed.wait(self._interval)
                if self._over:
                    return
                if self.paused and not self._asked:
                    continue
                by, self._asked = self._by, False
            try:
                self._began = time.monotonic()
                until = time.time() if self._end is None else self._end
                self.latest, self._trouble = self._feed.read(by, until, self._minutes), ""
            except DashboardError as error:
                self._trouble = f"{error}; asked again every {self._interval:g} s"
            finally:
                self._began = 0.0


def live(feed: Feed, look: Look, by: str, interval: float, minutes: float, end: float | None) -> None:
    """Until `q`, Ctrl-C or SIGTERM; the terminal is left as it was."""
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    reader = _Reader(feed, by, interval, minutes, end)
    try:
        with (
            ended_by_signal() as pause,
            _keyboard() as pressed,
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as screen,
        ):
            while pause(0.0):
                look.snapshot, look.trouble, look.paused = reader.latest, reader.trouble, reader.paused
                screen.update(Group(*draw(look, console.width, console.height)), refresh=True)
                for key in pressed(_DRAW_SECONDS):
                    if key == "q":
                        return
                    if key == "b":
                        reader.turn()
                    elif key == "r":
                        look.wide = not look.wide
                    elif key == "p":
                        reader.paused = not reader.paused
    finally:
        reader.close()


@contextmanager
def _keyboard() -> Iterator[Pressed]:
    """Waits for keys as they are pressed, unechoed. Where stdin is no terminal nothing is ever pressed."""
    import termios
    import tty

    if not sys.stdin.isatty():

        def nothing(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield nothing
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        data = os.read(descriptor, 64)
        if not data:  # the terminal is gone
            raise KeyboardInterrupt
        return data.decode("ascii", "ignore").lower()

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
