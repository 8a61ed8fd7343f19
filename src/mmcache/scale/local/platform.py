"""`LocalPlatform`: one process a member, in a folder of its own, on loopback. Processes outlive who started them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.local import processes
from mmcache.scale.local.config import NODE_TIMEOUT_MS, config
from mmcache.scale.local.files import Files, MemberFile, write
from mmcache.scale.local.locks import is_held, taken
from mmcache.scale.local.ports import HOST, free_port, is_free
from mmcache.scale.local.versions import can_follow, find, is_meant, look_anew
from mmcache.scale.observe import side_by_side
from mmcache.scale.observed import Member
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.talk import Word, talk

END_SECONDS = 10.0
"""For a server's own end; then it is killed."""
SILENT_LOOKS = 30
"""A server that has not answered so many looks (one a second) in a row hangs for good, and is killed."""
_ANSWER_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_MOST_LOG = 8 << 20
_LAST_LINES = 3
_UNSAID = "the server said nothing"


class LocalPlatform:
    """See `Platform`. `want` says how members are to be; `tend`, called several times a second by the one who watches,
    does what takes time: it ends what is to end, and starts again what died."""

    def __init__(
        self,
        folder: Path,
        *,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        processes.require_proc()
        self.files = Files(folder.resolve())
        self._node_timeout_ms, self._monotonic = node_timeout_ms, monotonic
        self._spec, self._first_port = ClusterSpec(), 7001
        self._lock = threading.RLock()
        self._children: list[int] = []
        self._seen: dict[str, tuple[int, int]] = {}
        """Process ids by member, as they were last, and when these processes began."""
        self._since: dict[str, float] = {}
        """When it was first seen dead, or told to end."""
        self._silent: dict[str, int] = {}
        self._unproved: set[str] = set()
        """Started, and not heard of yet."""
        self._looked = float("-inf")
        self.troubles: dict[str, str] = {}
        """Why a member does not start, in the server's own words."""

    def want(self, spec: ClusterSpec, first_port: int = 7001) -> None:
        """How members are from now on. Those that run get another memory at once, another version by `replace`."""
        if spec.version != self._spec.version:
            look_anew()
        self._spec, self._first_port = spec, first_port

    def members(self) -> Sequence[Member]:
        """See `Platform`. All are asked side by side: those that hang cost one wait."""
        files = {name: self.files.member(name) for name in self.files.member_names()}
        alive = {name for name, file in files.items() if file is not None and self._alive(name)}
        asked = [file for name, file in files.items()
                 if file is not None and name in alive and not (file.leaving or file.replacing)]  # fmt: skip
        answers = side_by_side(lambda file: self._answers(file.port), asked, _ANSWER_SECONDS)
        answering = {file.port for file, answer in zip(asked, answers, strict=True) if answer is True}
        found = []
        for name, file in files.items():
            shard, place = map(int, name.split("-"))
            if file is None:  # it is being made, or damaged: `tend` sees to it
                found.append(Member(shard, place))
                continue
            ready = file in asked and file.port in answering
            if ready:
                self._unproved.discard(name)
            current, ended = self._current(file), name not in alive and self._ended(name)
            found.append(Member(shard, place, HOST, file.port, ready, file.leaving, current, ended=ended))
        return found

    def start_shard(self, shard: int, members: int) -> None:
        """See `Platform`."""
        with self._lock:
            for name in (f"{shard}-{place}" for place in range(members)):
                if self.files.member(name) is not None:
                    continue
                try:
                    self._make(name)
                    self._start(name)
                except OSError as error:
                    raise ScaleError(f"cannot start member {name}: {error}") from error

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        """See `Platform`."""
        with self._lock:
            for name in self.files.member_names():
                at, place = map(int, name.split("-"))
                if at == shard and place >= keep:
                    self._end(name, leaving=True)

    def replace(self, member: Member) -> None:
        """See `Platform`."""
        with self._lock:
            file = self.files.member(member.name)
            if file is None or file.leaving or file.replacing:
                return
            if not member.current and self._current(file):  # it was, since it was looked at
                return
            wanted = find(self._spec.version)
            if file.path and Path(file.path).exists() and not can_follow(wanted, find(file.path)):
                raise ScaleError(
                    f"a {wanted} cannot read what a {file.server} wrote: the blocks would be lost. Go on with the "
                    "newer one (mmcache cluster upgrade), or start anew (mmcache cluster down, then up --server)"
                )
            self._end(member.name, replacing=True)

    def tend(self) -> None:
        """End what is to end, start what died, see that none hangs; `troubles` says of whom not. Raises `OSError`."""
        with self._lock:
            self._children = [pid for pid in self._children if not processes.reaped(pid)]
            names = self.files.member_names()
            for name in self._seen.keys() - set(names):  # somebody has removed its folder
                self._signal(name, signal.SIGKILL)
                del self._seen[name]
            for name in self.troubles.keys() - set(names):
                del self.troubles[name]
            alive = {name for name in names if self._alive(name)}
            if alive - self._seen.keys():  # they were started by another, before us
                for name, pids in processes.below(self.files.members, self._programs()).items():
                    self._seen.setdefault(name, (pids[0], processes.began(pids[0])))
            now = self._monotonic()
            look = now - self._looked >= _LOOK_SECONDS
            if look:
                self._looked = now
            for name in names:
                try:
                    self._tend(name, name in alive, now, look, alone=not alive)
                except (ScaleError, OSError) as error:
                    self.troubles[name] = str(error)

    def end_all(self, patience: float = 4 * END_SECONDS) -> None:
        """All members are ended and their folders gone. Raises `ScaleError` when one does not end."""
        with self._lock:
            began = time.monotonic()
            for name in self._everything():
                with suppress(OSError):  # the disk may be full
                    self._note(name, leaving=True)
                self._tell_to_end(name)
                if not (self.files.members / name).exists():
                    self._signal(name, signal.SIGKILL)
            while left := [name for name in self._everything() if self._alive(name)]:
                if time.monotonic() - began > patience:
                    raise ScaleError(f"these members do not end: {', '.join(left)}; see {self.files.members}")
                if time.monotonic() - began > END_SECONDS:
                    for name in left:
                        self._signal(name, signal.SIGKILL)
                self._children = [pid for pid in self._children if not processes.reaped(pid)]
                time.sleep(0.02)
            self._seen.clear()
            for name in self.files.member_names():
                shutil.rmtree(self.files.members / name, ignore_errors=True)
            with suppress(OSError):  # somebody has put other things there
                self.files.members.rmdir()

    def pids(self) -> dict[str, int]:
        """Of the servers that run, by member."""
        return {name: pids[0] for name, pids in processes.below(self.files.members, self._programs()).items()}

    # one member

    def _tend(self, name: str, alive: bool, now: float, look: bool, alone: bool) -> None:
        file = self.files.member(name)
        if file is None:  # it was being made when we ended, or is damaged: nobody knows where it listens
            self._make(name)
            self._end(name, replacing=True)
        elif not alive:
            self._bring_back(name, file, now, alone)
        elif file.leaving or file.replacing:
            self._see_off(name, file, now)
        elif look:
            self._look_after(name, file)

    def _make(self, name: str) -> None:
        shard, place = map(int, name.split("-"))
        folder = self.files.members / name
        folder.mkdir(mode=0o700, exist_ok=True)
        write(folder / "member.json", MemberFile(shard, place, self._port()))

    def _port(self) -> int:
        known = (self.files.member(name) for name in self.files.member_names())
        return free_port(self._first_port, {file.port for file in known if file is not None})

    def _start(self, name: str) -> None:
        """Start it, under a new id: it has nothing of what it was. Nothing where it runs."""
        folder, binary = self.files.members / name, find(self._spec.version)
        held = taken(folder / "lock")
        if held is None:
            return
        try:
            file = self.files.member(name)
            assert file is not None
            if self._signal(name, signal.SIGKILL):  # it works here without its lock: the child of one that was killed
                return
            if not is_free(file.port):  # nobody of ours can be there, since its lock was free
                file = msgspec.structs.replace(file, port=self._port())
            for old in ("nodes.conf", "dump.rdb"):
                (folder / old).unlink(missing_ok=True)
            memory = self._spec.memory_bytes
            text = config(binary, file.port, memory, self.files.password, self._node_timeout_ms)
            write(folder / "server.conf", text.encode())
            fresh = msgspec.structs.replace(
                file, boot=processes.boot(), path=str(binary.path), server=str(binary), memory_bytes=memory,
                replacing=False,
            )  # fmt: skip
            write(folder / "member.json", fresh)
            pid = processes.start([binary.command(folder), "server.conf"], folder, folder / "log", held)
        finally:
            os.close(held)
        self._children.append(pid)
        self._seen[name] = pid, processes.began(pid)
        self._unproved.add(name)
        self._since.pop(name, None)
        self._silent.pop(name, None)

    def _end(self, name: str, *, leaving: bool = False, replacing: bool = False) -> None:
        """It is told to end, and what is to become of it is written down first."""
        self._note(name, leaving=leaving, replacing=replacing)
        self._tell_to_end(name)

    def _note(self, name: str, *, leaving: bool = False, replacing: bool = False) -> None:
        file = self.files.member(name)
        if file is not None and (file.leaving, file.replacing) != (leaving, replacing):
            fresh = msgspec.structs.replace(file, leaving=leaving, replacing=replacing)
            write(self.files.members / name / "member.json", fresh)
            self._since.pop(name, None)

    def _tell_to_end(self, name: str) -> None:
        self._since.setdefault(name, self._monotonic())
        self._signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)  # a paused one hears nothing else

    def _see_off(self, name: str, file: MemberFile, now: float) -> None:
        if name not in self._since:  # whoever told it to end is no more
            self._end(name, leaving=file.leaving, replacing=file.replacing)
        elif now - self._since[name] > END_SECONDS:
            self._signal(name, signal.SIGKILL)

    def _bring_back(self, name: str, file: MemberFile, now: float, alone: bool) -> None:
        """It does not run. alone: no member does, so that nobody could take its place first."""
        if file.leaving:
            self._since.pop(name, None)
            self._seen.pop(name, None)
            self.troubles.pop(name, None)
            shutil.rmtree(self.files.members / name, ignore_errors=True)
            return
        never = not file.boot or file.boot != processes.boot()
        if name not in self._since:
            self._since[name] = now
            if not never and not file.replacing:
                self.troubles[name] = f"it has ended; its log: {self._last_words(name)}"
        waited = now - self._since[name]
        fails = name in self._unproved  # it did not even come up: not again at once
        if file.replacing or never or (alone and not fails) or waited >= 2 * self._node_timeout_ms / 1000:
            self._start(name)

    def _look_after(self, name: str, file: MemberFile) -> None:
        """It runs, and is to."""
        self._since.pop(name, None)
        log = self.files.members / name / "log"
        with suppress(OSError):
            if log.stat().st_size > _MOST_LOG:
                os.truncate(log, 0)
        if self._answers(file.port, loading=True):
            self._silent.pop(name, None)
            self._unproved.discard(name)
            self.troubles.pop(name, None)
        else:
            self._silent[name] = self._silent.get(name, 0) + 1
            if self._silent[name] >= SILENT_LOOKS:
                self.troubles[name] = f"it did not answer for {SILENT_LOOKS} s, and was killed"
                self._signal(name, signal.SIGKILL)
                return
        memory = self._spec.memory_bytes
        if file.memory_bytes != memory and self._ask(file.port, "CONFIG", "SET", "maxmemory", memory) == "OK":
            write(self.files.members / name / "member.json", msgspec.structs.replace(file, memory_bytes=memory))

    # its process

    def _alive(self, name: str) -> bool:
        return is_held(self.files.members / name / "lock")

    def _ended(self, name: str) -> bool:
        """Whether the kernel says so twice: its lock, which goes with it, is free, and nothing of ours works there."""
        lock = self.files.members / name / "lock"
        return lock.exists() and name not in processes.below(self.files.members, self._programs())

    def _answers(self, port: int, loading: bool = False) -> bool:
        said = self._ask(port, "PING")
        return said == "PONG" or (loading and isinstance(said, TierError))  # which it says while it is being filled

    def _ask(self, port: int, *words: Word) -> object:
        """The reply, an error reply included; None when nobody answers."""
        try:
            return talk(port, words, password=self.files.password, timeout_seconds=_ANSWER_SECONDS)[0]
        except (OSError, TierError):
            return None

    def _signal(self, name: str, number: signal.Signals) -> bool:
        """Whether there was a process to signal; also where its folder is no more, or elsewhere."""
        pid, began = self._seen.get(name, (0, 0))
        if pid and processes.send(pid, number, lambda pid: processes.began(pid) == began):
            return True
        folder, programs = self.files.members / name, self._programs()
        for pid in processes.below(self.files.members, programs).get(name, ()):
            if processes.send(pid, number, lambda pid: processes.works_in(pid, folder, programs)):
                self._seen[name] = pid, processes.began(pid)
                return True
        return False

    def _programs(self) -> frozenset[str]:
        known = (self.files.member(name) for name in self.files.member_names())
        return processes.SERVERS | {Path(file.path).resolve().name for file in known if file is not None and file.path}

    def _everything(self) -> Iterable[str]:
        return dict.fromkeys([*self.files.member_names(), *self._seen])

    def _current(self, file: MemberFile) -> bool:
        version = self._spec.version
        if not version:  # whatever runs
            return True
        try:
            wanted = find(version)
        except ScaleError:  # it was removed, or is not where we look: who is to be replaced by it is told so
            return is_meant(version, file.server, file.path)
        return str(wanted) == file.server and ("/" not in version or str(wanted.path) == file.path)

    def _last_words(self, name: str) -> str:
        try:
            text = (self.files.members / name / "log").read_text(errors="replace")
        except OSError:
            return _UNSAID
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return " ".join(said[-_LAST_LINES:])[-500:] or _UNSAID
