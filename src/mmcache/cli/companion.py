"""A command of ours beside another one: in a process of its own, which ends with the one that started it, however that
ends: it is told by SIGTERM, and where nobody can tell it any more (SIGKILL), by the end of what it reads on stdin.
Where it dies itself, it is started again, later each time, and not for ever.

    python -m mmcache.cli.companion dashboard --json …
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from mmcache.model.errors import SettingsError

END_SECONDS = 10.0
"""For its end, once it was told."""
PAUSES = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds before it is started again, by how often it died in a row; after the last of them it stays dead."""
STEADY_SECONDS = 600.0
"""It lived for so long: earlier deaths do not count."""
_WORDS = 20
"""Lines of what it says on stderr that are kept."""
_log = logging.getLogger("mmcache.cli")


@contextmanager
def companion(
    command: Sequence[str],
    patience: float = 60.0,
    again: Callable[[dict[str, Any]], Sequence[str]] | None = None,
    pauses: Sequence[float] = PAUSES,
) -> Iterator[dict[str, Any]]:
    """Run `mmcache COMMAND…`, which prints one line of JSON when it is ready; gives that, and its `pid`. It is stopped
    at the end.

    again: the command that takes its place when it dies, of what it said; None: it stays dead. Whoever ends it by
    SIGTERM means it. Raises `SettingsError`, with what it said, where it does not get so far the first time.
    """
    first = _Process(command)
    try:
        told = first.told(patience)
    except BaseException:
        first.stop()
        raise
    keeper = _Keeper(first, None if again is None else list(again(told)), patience, pauses)
    try:
        yield told | {"pid": first.process.pid}
    finally:
        keeper.end()


class _Process:
    """One of them, and the last of what it said."""

    def __init__(self, command: Sequence[str]) -> None:
        self.name = command[0]
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,  # Ctrl-C in a terminal is told to us, and not to it
        )  # fmt: skip
        self._said: deque[bytes] = deque(maxlen=_WORDS)
        self._listening = threading.Thread(
            target=self._said.extend, args=(self.process.stderr,), name="mmcache-companion", daemon=True
        )
        self._listening.start()

    def told(self, patience: float) -> dict[str, Any]:
        """What it prints when it is ready. Raises `SettingsError`; then it has ended."""
        assert self.process.stdout is not None
        cut = threading.Timer(patience, self.process.kill)
        cut.daemon = True
        cut.start()
        try:
            line = self.process.stdout.readline()
        finally:
            cut.cancel()
        try:
            told: dict[str, Any] = json.loads(line)
        except ValueError:
            self._end()
            self._listening.join(END_SECONDS)
            words = b"".join(self._said).decode(errors="replace").strip() or "it took too long"
            raise SettingsError(f"mmcache {self.name} did not start: {words}") from None
        if "error" in told:
            self._end()
            raise SettingsError(f"mmcache {self.name} did not start: {told['message']}")
        return told

    def stop(self) -> None:
        """It ends. Idempotent."""
        self._end()
        self._listening.join(END_SECONDS)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _end(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Keeper:
    """Starts it again when it dies, in a thread of its own."""

    def __init__(
        self, first: _Process, command: Sequence[str] | None, patience: float, pauses: Sequence[float]
    ) -> None:
        self._now, self._patience, self._pauses = first, patience, pauses
        self._over, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        if command is not None:
            self._thread = threading.Thread(target=self._keep, args=(command,), name="mmcache-keeper", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """It is not started again; what runs is stopped."""
        with self._lock:
            self._over.set()
            self._now.stop()
        if self._thread is not None:
            self._thread.join()

    def _keep(self, command: Sequence[str]) -> None:
        deaths, began, ready = 0, time.monotonic(), True
        while True:
            code = self._now.process.wait()
            if self._over.is_set():
                return
            if code in (0, -signal.SIGTERM) and ready:
                _log.info("mmcache %s was ended, and is not started again", command[0])
                return
            deaths = 1 if time.monotonic() - began >= STEADY_SECONDS else deaths + 1
            if deaths > len(self._pauses):
                _log.error("mmcache %s has died %d times (%d), and stays so", command[0], deaths, code)
                return
            pause = self._pauses[deaths - 1]
            _log.warning("mmcache %s has died (%d); again in %g s", command[0], code, pause)
            if self._over.wait(pause) or not self._start(command):
                return
            began, ready = time.monotonic(), False
            try:
                self._now.told(self._patience)
                ready = True
            except SettingsError as error:
                if not self._over.is_set():
                    _log.warning("%s", error)

    def _start(self, command: Sequence[str]) -> bool:
        """Whether there is another; not when it is over."""
        with self._lock:
            if self._over.is_set():
                return False
            self._now.stop()
            try:
                self._now = _Process(command)
            except OSError as error:  # no memory, no process to be had: it would be no better beside what it serves
                _log.error("mmcache %s cannot be started again: %s", command[0], error)
                return False
            return True


def main(arguments: Sequence[str]) -> int:
    """Run a command until it ends, or stdin does."""
    threading.Thread(target=_follow, name="mmcache-companion", daemon=True).start()
    from mmcache.cli.app import run

    return run(arguments)


def _follow() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(END_SECONDS)
    os._exit(1)  # it does not come to its end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
