"""`mmcache top` in a terminal of its own: keys, a dashboard that comes and goes, and how it leaves the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from tests.unit.cli.top_world import answers, dashboard

PATIENCE = 60.0
LEAVE = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


class Screen:
    """The command in a terminal of 80 × 24."""

    def __init__(self, *words: str, **env: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mmcache.cli", "top", *words],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env=clean | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | env,
        )  # fmt: skip
        self.seen = b""

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, words: str) -> None:
        """Until they were drawn since the last wait; patient, for the machine may be busy."""

        def drawn() -> bool:
            found = words.encode() in self.seen
            assert found or self.process.poll() is None, f"it ended before {words!r}: {self.seen!r}"
            return found

        self.until(drawn, words)
        self.seen = self.seen[self.seen.rindex(words.encode()) + len(words) :]

    def until(self, met: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not met():
            assert time.monotonic() < end, f"never {what!r}: {self.seen[-3000:]!r}"
            self.read()

    def read(self) -> None:
        if select.select([self.master], [], [], 0.05)[0]:
            self.seen += os.read(self.master, 65536)

    def ended(self) -> int:
        """Its exit code; what it wrote last is read first."""
        self.until(lambda: self.process.poll() is not None, "ended")
        while select.select([self.master], [], [], 0.05)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def canned() -> dict[str, Any]:
    return answers()


@pytest.fixture
def screen(canned: dict[str, Any]) -> Iterator[Screen]:
    with dashboard(canned) as (address, _):
        found = Screen("--from", address, "--interval", "0.1")
        try:
            yield found
        finally:
            found.close()


def test_keys(screen: Screen) -> None:
    screen.wait("by tenant")
    screen.wait("hit ratio")
    screen.wait("Other traffic")
    screen.press("b")
    screen.wait("by region")
    screen.press("r")
    screen.wait("misses by reason over time")
    screen.press("r")
    screen.wait("why the hit ratio fell")
    screen.press("p")
    screen.wait("paused")
    screen.press("b")
    screen.wait("by strategy")
    screen.press("xyz")  # nothing
    screen.press("q")
    assert screen.ended() == 0
    assert LEAVE in screen.seen
    assert SHOW_CURSOR in screen.seen
    assert termios.tcgetattr(screen.slave) == screen.before


@pytest.mark.parametrize("end", ["ctrl-c", "SIGTERM"])
def test_however_it_ends_the_terminal_is_as_it_was(screen: Screen, end: str) -> None:
    screen.wait("hit ratio")
    if end == "ctrl-c":
        os.killpg(screen.process.pid, signal.SIGINT)
    else:
        screen.process.send_signal(signal.SIGTERM)
    assert screen.ended() == 130
    assert LEAVE in screen.seen
    assert SHOW_CURSOR in screen.seen
    assert b"Traceback" not in screen.seen
    assert termios.tcgetattr(screen.slave) == screen.before


def test_a_dashboard_that_is_away_is_asked_again(canned: dict[str, Any], screen: Screen) -> None:
    screen.wait("Other traffic")
    ratio = canned.pop("ratio")
    screen.wait("is it a dashboard?")
    screen.wait("Other traffic")  # what was last seen stays
    canned["ratio"] = ratio
    canned["causes"] = {"causes": []}
    screen.wait("nothing fell")
    screen.press("q")
    assert screen.ended() == 0


def test_no_dashboard_at_all() -> None:
    with dashboard({}) as (address, _):
        pass
    screen = Screen("--from", address, "--interval", "0.1")
    try:
        screen.wait("no dashboard answers at")
        screen.press("q")
        assert screen.ended() == 0
    finally:
        screen.close()


def test_no_colour_where_none_is_wanted(canned: dict[str, Any]) -> None:
    with dashboard(canned) as (address, _):
        screen = Screen("--from", address, "--interval", "0.1", NO_COLOR="1")
        try:
            screen.wait("Other traffic")
            screen.press("q")
            assert screen.ended() == 0
        finally:
            screen.close()
    codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", screen.seen) for code in found.split(b";")}
    assert not codes & {b"%d" % code for code in (*range(30, 50), *range(90, 108))}


def test_a_name_that_would_clear_the_screen(canned: dict[str, Any], screen: Screen) -> None:
    screen.wait("Other traffic")
    canned |= answers("evil\x1b]0;owned\x07\x1b[2J")
    screen.wait("evil\\u001b")
    screen.press("q")
    assert screen.ended() == 0
    assert b"owned\x07" not in screen.seen


def test_a_dashboard_that_does_not_answer_is_told_of_and_can_be_left(canned: dict[str, Any]) -> None:
    answered, ratio = Event(), canned["ratio"]

    def late() -> Any:
        answered.wait(PATIENCE)
        return ratio

    canned["ratio"] = late
    with dashboard(canned) as (address, _):
        screen = Screen("--from", address, "--interval", "0.1")
        try:
            screen.wait("still waiting for an answer")
            answered.set()
            screen.wait("Other traffic")
            answered.clear()
            screen.wait("still waiting for an answer")
            screen.press("q")
            assert screen.ended() == 0
        finally:
            answered.set()
            screen.close()


def test_a_window_that_becomes_narrow(screen: Screen) -> None:
    screen.wait("Other traffic")
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
    screen.wait("mmcache top  ")
    screen.wait("\u2026")  # the head has no room
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 1, 1, 0, 0))
    screen.read()
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    screen.wait("hottest keys")
    screen.press("q")
    assert screen.ended() == 0
    assert b"Traceback" not in screen.seen
