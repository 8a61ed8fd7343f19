"""`Handle`: what a command does with a cluster of this machine: bring it up, change what is wanted, look, end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import category

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access
from mmcache.scale.local import processes
from mmcache.scale.local.files import Files, Told, Wanted, write
from mmcache.scale.local.locks import has_open, holder, is_held
from mmcache.scale.local.platform import LocalPlatform
from mmcache.scale.local.ports import HOST, require_ports
from mmcache.scale.local.versions import find
from mmcache.scale.observe import look
from mmcache.scale.observed import Observed
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.settings import default_traces

SEEDS = 3
"""Nodes that the address names: those of the first shards, which are there as long as the cluster is."""
FIRST_PORT = 7001
_START_SECONDS = 30.0
_END_SECONDS = 20.0
_STUCK_SECONDS = 120.0
_POLL_SECONDS = 0.1
_LEAST_ROOM = 32 << 10
Pause = Callable[[float], bool]
"""Waits so many seconds; whether to go on."""


def default_folder(name: str = "default") -> Path:
    """Where the cluster of a name is: `~/.local/state/mmcache/cluster/NAME`. Raises `ScaleError` for a bad name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise ScaleError(f"a cluster's name is letters, digits, dots and dashes, not {name!r}")
    try:
        return default_traces().parent / "cluster" / name
    except RuntimeError as error:
        raise ScaleError(f"{error}: give --folder") from error


class Handle:
    """Of the cluster in a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        """Raises `ScaleError` for a folder of a user that there is not."""
        try:
            self.files = Files(folder.expanduser().resolve())
        except RuntimeError as error:
            raise ScaleError(f"{folder}: {error}") from error

    @property
    def exists(self) -> bool:
        """Whether there is a cluster, running or not."""
        return self.files.spec.exists()

    def require(self) -> Wanted:
        """What is wanted of it. Raises `ScaleError` where there is none, or its file is damaged."""
        if not self.exists:
            raise ScaleError(f"there is no cluster in {self.files.folder}: mmcache cluster up")
        return self.files.wanted()

    @property
    def supervisor(self) -> int | None:
        """The process that watches over it; None: nobody does."""
        return holder(self.files.supervisor_lock)

    def require_supervisor(self) -> None:
        """Raises `ScaleError` where nobody would do what is wanted."""
        if not is_held(self.files.supervisor_lock):
            raise ScaleError(f"nobody watches over the cluster in {self.files.folder}: mmcache cluster up")

    @property
    def password(self) -> str:
        """Raises `ScaleError`."""
        return self.files.password

    @property
    def url(self) -> str:
        """What a cache is given as `shared=`; without the password. Raises `ScaleError` before there are members."""
        known = {name: self.files.member(name) for name in self.files.member_names()}
        files = [file for file in known.values() if file is not None and file.place == 0 and not file.leaving]
        if not files:
            raise ScaleError(f"the cluster in {self.files.folder} has no members yet: mmcache cluster status")
        return f"valkey://{','.join(f'{HOST}:{file.port}' for file in files[:SEEDS])}?cluster=true"

    @property
    def disk_full(self) -> bool:
        """Whether there is no room for what is told; then nothing new is."""
        try:
            disk = os.statvfs(self.files.folder)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < _LEAST_ROOM

    def up(self, change: dict[str, Any], first_port: int | None = None, *, start: bool = True) -> Wanted:
        """There is a cluster of this folder, and somebody watches over it. What it holds stays.

        change: fields of `ClusterSpec` that are to be others than they are (or, in a new cluster, than by default), and
        `burst` as such a dict. start: the supervisor, in a process of its own. Raises `ScaleError`, `SettingsError`.
        """
        processes.require_proc()
        self._require_ours()
        if not self.exists:
            self._allowed(None, change, first_port)  # before anything of it is there
        with self._written(), self._begun():
            old = self.files.wanted() if self.exists else None
            fresh = self._write(old, self._allowed(old, change, first_port), first_port)
            if start:
                self._start()
        return fresh

    def change(self, change: dict[str, Any]) -> Wanted:
        """Another spec. Raises `ScaleError`, `SettingsError`."""
        self.require()
        self.files.require_owner(self.files.folder)  # what root wrote its supervisor could not read
        with self._written(), self.files.commanded():
            old = self.require()
            spec = changed(old.spec, change)
            find(spec.version)
            return self._write(old, spec, None)

    def look(self) -> Observed:
        """What is there now. Raises `ScaleError`."""
        wanted = self.require()
        platform = LocalPlatform(self.files.folder)
        platform.want(wanted.spec, wanted.first_port)
        return look(platform, Access(self.password), time.monotonic())

    def pids(self) -> dict[str, int]:
        """Of the servers that run, by member."""
        return LocalPlatform(self.files.folder).pids()

    def settled(self, generation: int, hear: Callable[[Told], None], pause: Pause) -> Told | None:
        """Wait until what was wanted is there, or is refused (`Phase.BLOCKED`). None: `pause` has ended it.

        hear: is told each status. Raises `ScaleError` when nobody works on it any more, or nothing has moved for long.
        """
        moved, last = time.monotonic(), None
        while pause(_POLL_SECONDS):
            told = self.files.told()
            if told is not None and told.generation >= generation and told.status is not None:
                hear(told)
                status = told.status
                if status.phase is Phase.BLOCKED:
                    return told
                if status.phase is Phase.STEADY and status.shards == status.wanted and not told.trouble:
                    return told
                signs = (status.phase, status.shards, status.message, status.progress, status.ready_nodes)
                if signs != last:
                    moved, last = time.monotonic(), signs
            if not is_held(self.files.supervisor_lock):
                raise ScaleError(f"its supervisor has ended: {self._last_words()}; mmcache cluster up starts another")
            if time.monotonic() - moved > _STUCK_SECONDS:
                words = "" if told is None else told.failing or (told.status.message if told.status else "")
                raise ScaleError(
                    f"nothing has moved for {_STUCK_SECONDS:g} s: {words or 'nothing was told'}; the supervisor's last "
                    f"words: {self._last_words()}; mmcache cluster status says more"
                )
        return None

    def down(self) -> None:
        """The cluster is ended, and all that it has is gone. Raises `ScaleError`."""
        processes.require_proc()
        if not self.files.is_clusters:
            raise ScaleError(f"there is no cluster in {self.files.folder}")
        self.files.require_owner(self.files.folder)
        with self.files.commanded():
            self._end_supervisor()
            LocalPlatform(self.files.folder).end_all()
            self.files.remove()

    # its parts

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raises `ScaleError` where a file cannot be written."""
        try:
            yield
        except OSError as error:
            raise ScaleError(
                f"cannot write into {self.files.folder}: {error.strerror or error}: a cluster's folder is yours, on a "
                "disk with room (--folder)"
            ) from error

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """The folder is there, and nobody else's command is at work in it."""
        self.files.make()
        with self.files.commanded():
            self.files.make()  # it may have been ended while we waited
            yield

    def _allowed(self, old: Wanted | None, change: dict[str, Any], first_port: int | None) -> ClusterSpec:
        """What is wanted then. Raises `ScaleError`, `SettingsError` where that cannot be."""
        spec = changed(old.spec if old else ClusterSpec(), change)
        find(spec.version)
        if old is None:
            port = FIRST_PORT if first_port is None else first_port
            require_ports(port, spec.min_shards * (1 + spec.replicas))
        return spec

    def _require_ours(self) -> None:
        """A folder of other things is not to lose its permissions, nor to be emptied one day."""
        folder = self.files.folder
        if folder.exists() and not folder.is_dir():
            raise ScaleError(f"{folder} is no folder")
        if any(category(each) in ("Cc", "Cs") for each in str(folder)):  # a newline, bytes that are no UTF-8
            raise ScaleError(f"{str(folder)!a} has characters in it that cannot be shown: give another --folder")
        if folder.is_dir() and not self.files.is_clusters and (strangers := self.files.strangers()):
            raise ScaleError(f"{folder} has other things in it ({strangers[0]}…): give an empty or a new --folder")

    def _write(self, old: Wanted | None, spec: ClusterSpec, first_port: int | None) -> Wanted:
        port = first_port if first_port is not None else (old.first_port if old else FIRST_PORT)
        if old is not None and (old.spec, old.first_port) == (spec, port):
            return old
        fresh = Wanted(spec, (old.generation if old else 0) + 1, port)
        write(self.files.spec, fresh, durable=True)
        return fresh

    def _start(self) -> None:
        """The supervisor, where none runs. Raises `ScaleError`."""
        end = time.monotonic() + _START_SECONDS
        while is_held(self.files.supervisor_lock):
            if self.supervisor is not None:
                return
            if time.monotonic() > end:
                raise ScaleError(f"{self.files.supervisor_lock} is held, and by no supervisor")
            time.sleep(0.02)  # one that was killed still has it when its files cannot be seen any more
        self.files.status.unlink(missing_ok=True)  # of one that ended: nobody is to take it for today's
        log = os.open(self.files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mmcache.scale.local", str(self.files.folder)],  # where PYTHONPATH holds
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ScaleError(f"cannot start the supervisor: {error}") from error
        finally:
            os.close(log)
        end = time.monotonic() + _START_SECONDS
        while self.supervisor != process.pid or self.files.told() is None:
            if process.poll() is not None:
                if self.supervisor is not None:  # another was quicker
                    return
                raise ScaleError(f"the supervisor did not start: {self._last_words()}")
            if time.monotonic() > end:
                raise ScaleError(f"the supervisor is not ready after {_START_SECONDS:g} s; see {self.files.log}")
            time.sleep(0.02)
        process.returncode = 0  # it is to outlive us: nobody needs to be warned that it runs

    def _end_supervisor(self) -> None:
        lock = self.files.supervisor_lock
        number, end = signal.SIGTERM, time.monotonic() + _END_SECONDS
        while is_held(lock):
            pid = holder(lock)
            if pid is not None:
                for each in (number, signal.SIGCONT):  # a paused one hears nothing else
                    processes.send(pid, each, lambda pid: has_open(pid, lock))
            if time.monotonic() > end:
                if number is signal.SIGKILL:
                    raise ScaleError(f"the supervisor (process {pid}) does not end")
                number, end = signal.SIGKILL, time.monotonic() + _END_SECONDS
            time.sleep(0.05)

    def _last_words(self) -> str:
        try:
            lines = self.files.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return lines[-1][-300:] if lines else f"see {self.files.log}"


def changed(spec: ClusterSpec, change: dict[str, Any]) -> ClusterSpec:
    """The spec with other fields. A smallest number of shards above the largest moves the largest, and the other way
    round; the path of a server is seen from here, the supervisor is elsewhere. Raises `SettingsError`."""
    change = dict(change)
    if "/" in change.get("version", ""):
        change["version"] = os.path.abspath(os.path.expanduser(change["version"]))
    least, most = change.get("min_shards"), change.get("max_shards")
    if least is not None and most is None:
        change["max_shards"] = least if spec.min_shards == spec.max_shards else max(spec.max_shards, least)
    elif most is not None and least is None:
        change["min_shards"] = min(spec.min_shards, most)
    if "burst" in change:
        change["burst"] = replace(spec.burst, **change["burst"])
    return replace(spec, **change)
