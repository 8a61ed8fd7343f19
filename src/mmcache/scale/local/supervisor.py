"""The supervisor of a cluster: one process a folder, held by a kernel lock. It may be killed at any time and started
again: the servers run on, and the next one goes on with them.

One thread hears (signals, a changed `spec.json`) and tends the processes; the other turns the controller, whose step is
ended early as soon as there is something new to hear.

    python -m mmcache.scale.local FOLDER
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from mmcache.model.errors import MMCacheError, ScaleError
from mmcache.scale.access import Access
from mmcache.scale.controller import Controller
from mmcache.scale.local.files import Event, Files, Told, Wanted, write
from mmcache.scale.local.locks import holder, is_at, taken
from mmcache.scale.local.platform import LocalPlatform
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Happened, Phase, Status

TEND_SECONDS = 0.2
TURN_SECONDS = 1.0
"""Between two turns while there is nothing to do…"""
_HURRY_SECONDS = 0.05
"""…and while there is; longer and longer as long as nothing comes of it, up to…"""
_SLOW_SECONDS = 0.4
"""…this: what is waited for may take for ever."""
_LOCK_SECONDS, _LONGEST_LOCK_SECONDS = 1.0, 10.0
_SAVE_SECONDS = 10.0
_END_SECONDS = 15.0
"""For the step that is being done when we are to end; then it is left as it is, to be done again."""
_REMOVAL_SECONDS = 20.0
_MOST_LOG = 4 << 20
_BUSY = frozenset({Phase.CREATING, Phase.SCALING_OUT, Phase.SCALING_IN, Phase.REPAIRING, Phase.UPGRADING})
_MANY = ("MoveSlots",)
"""A resharding is hundreds of them: the first is told of, how far it is stands in the status."""
_log = logging.getLogger("mmcache.scale.local")


class Turns(Protocol):
    """What is turned: `Controller`."""

    def turn(self, spec: ClusterSpec, at: float, cancelled: Callable[[], bool] = ...) -> Status:
        """See `Controller`."""

    def saved(self) -> object:
        """See `Controller`."""


class Supervisor:
    """Of one folder. `run` until `stop`; use it in one thread."""

    def __init__(
        self,
        folder: Path,
        turns: Turns | None = None,
        platform: LocalPlatform | None = None,
        still_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        """still_ours: whether no other can have taken the folder. Raises `ScaleError` where it has no cluster."""
        self._still_ours = still_ours
        self.platform = platform or LocalPlatform(folder)
        self.files = self.platform.files
        self._wanted = self.files.wanted()
        self._password = self.files.password
        self._turns = turns or Controller(self.platform, Access(self._password), self.files.baseline())
        self._to_end = False
        self._over, self._wake, self._changed = threading.Event(), threading.Event(), threading.Event()
        self._trouble, self._damage = "", ""
        self._told_of: set[str] = set()
        self._status: Status | None = None
        self._pause = TURN_SECONDS
        self._last: Happened | None = None
        self._saying = threading.Lock()
        self._generation = 0
        self._saved_at = time.monotonic()

    def stop(self) -> None:
        """End soon. Safe in a signal handler: no lock is taken, which the interrupted thread might hold."""
        self._to_end = True

    def run(self) -> None:
        """Until `stop`, or until the folder is gone. Raises `ScaleError` where no turns can be made any more."""
        self._tell()
        turning = threading.Thread(target=self._turn_on, name="mmcache-cluster", daemon=True)
        turning.start()
        try:
            while not self._to_end:
                turning.join(TEND_SECONDS)
                if not turning.is_alive():
                    raise ScaleError("no more turns are made: the log says why")
                if not self._still_ours() or not self.files.folder.is_dir():
                    self._rest(turning)
                    if self._removed():
                        _log.warning("%s is gone: its servers are ended", self.files.folder)
                        self.platform.end_all()
                    break
                self._hear()
                self._tend()
        finally:
            self._rest(turning)
            if self._still_ours() and self.files.folder.is_dir():
                self._save()

    def _rest(self, turning: threading.Thread) -> None:
        self._over.set()
        self._wake.set()
        turning.join(_END_SECONDS)

    def _removed(self) -> bool:
        """Whether the folder goes; else another has taken it. Whoever removes it may take our lock first and stop there
        for a while, as a busy machine lets him."""
        end = time.monotonic() + _REMOVAL_SECONDS
        while self.files.spec.exists() and not self.files.supervisor_lock.exists() and time.monotonic() < end:
            time.sleep(TEND_SECONDS)
        return not self.files.spec.exists()

    # hears

    def _hear(self) -> None:
        try:
            fresh = self.files.wanted()
        except ScaleError as error:
            if self._damage != str(error):
                self._damage = str(error)
                self._say(Happened("SpecIgnored", f"{error}; what was wanted before stays", warning=True))
            return
        self._damage = ""
        if fresh != self._wanted:
            self._wanted = fresh
            self._changed.set()
            self._wake.set()

    def _tend(self) -> None:
        wanted = self._wanted
        self.platform.want(wanted.spec, wanted.first_port)
        try:
            self.platform.tend()
            troubles = [f"{name}: {words}" for name, words in sorted(self.platform.troubles.items())]
        except Exception as error:  # noqa: BLE001 - no memory, a file that makes no sense: the others need us
            troubles = [f"{type(error).__name__}: {error}"]
        for trouble in set(troubles) - self._told_of:
            self._say(Happened("MemberTrouble", trouble, warning=True))
        self._told_of = set(troubles)

    # turns

    def _turn_on(self) -> None:
        while not self._over.is_set():
            self._changed.clear()
            self._turn(self._wanted)
            self._tell()
            if time.monotonic() - self._saved_at > _SAVE_SECONDS:
                self._save()
            self._wake.wait(self._pause)
            if not self._over.is_set():
                self._wake.clear()

    def _turn(self, wanted: Wanted) -> None:
        self.platform.want(wanted.spec, wanted.first_port)
        self._pause, before = TURN_SECONDS, self._pause
        try:
            status = self._turns.turn(wanted.spec, time.time(), lambda: self._over.is_set() or self._changed.is_set())
        except Exception as error:  # noqa: BLE001 - whatever one turn meets, the next may do better; the cluster needs us
            self._trouble = self._plain(f"{type(error).__name__}: {error}")
            _log.error("a turn failed: %s", self._trouble, exc_info=not isinstance(error, MMCacheError | OSError))
            self._say(Happened("TurnFailed", self._trouble, warning=True))
            return
        if status.phase in _BUSY:
            last = self._status
            same = last is not None and (last.phase, last.message, last.progress) == (
                status.phase, status.message, status.progress,
            )  # fmt: skip
            self._pause = min(1.5 * before, _SLOW_SECONDS) if same else _HURRY_SECONDS
        self._trouble, self._status = "", status
        self._generation = wanted.generation
        for happened in status.happened:
            self._say(happened)

    # tells

    def _tell(self) -> None:
        troubles = [self._damage, self._trouble, *sorted(self._told_of)]
        told = Told(
            time.time(), os.getpid(), self._generation, self._status,
            self._plain("; ".join(text for text in troubles if text)),
        )  # fmt: skip
        try:
            write(self.files.status, told)
        except OSError as error:  # the disk is full, or the folder goes
            _log.error("cannot write the status: %s", error)

    def _say(self, happened: Happened) -> None:
        with self._saying:
            again = self._last is not None and happened.reason == self._last.reason in _MANY
            if happened == self._last or again:
                return
            self._last = happened
            message = self._plain(happened.message).removeprefix(f"{happened.reason}: ")
            _log.log(logging.WARNING if happened.warning else logging.INFO, "%s: %s", happened.reason, message)
            try:
                self.files.append(Event(time.time(), happened.reason, message, happened.warning))
            except OSError as error:
                _log.error("cannot write an event: %s", error)

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        try:
            write(self.files.saved, self._turns.saved())
            if self.files.log.exists() and self.files.log.stat().st_size > _MOST_LOG:
                os.truncate(self.files.log, 0)
        except OSError as error:
            _log.error("cannot save what is usual: %s", error)

    def _plain(self, text: str) -> str:
        return text.replace(self._password, "***")


def supervise(folder: Path, ready: Callable[[], None] = lambda: None) -> bool:
    """Watch over a cluster until SIGTERM, SIGINT or SIGHUP; its servers run on. False: another does already.

    Only in a main thread. Raises `ScaleError`.
    """
    _open_standard()
    files = Files(folder.resolve())
    held = taken(files.supervisor_lock, _LOCK_SECONDS)
    if held is None and holder(files.supervisor_lock) is None:  # who only looks at it, or dies, does so slowly
        held = taken(files.supervisor_lock, _LONGEST_LOCK_SECONDS)
    if held is None:
        return False
    try:
        supervisor = Supervisor(files.folder, still_ours=lambda: is_at(held, files.supervisor_lock))
        old = {
            number: signal.signal(number, lambda *_: supervisor.stop())
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            ready()
            supervisor.run()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
    finally:
        os.close(held)
    return True


def _open_standard() -> None:
    """None of 0, 1 and 2 is closed: a lock that got such a number would not reach the server that is to hold it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def main(folder: str) -> int:
    """In a process of its own: see `supervise`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        os.chdir(folder)  # to keep no other in use
        supervise(Path(folder))
    except (MMCacheError, OSError) as error:
        _log.error("%s", error)
        return 3
    return 0
