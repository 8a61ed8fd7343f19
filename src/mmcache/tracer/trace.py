"""`Trace`: one process, watched by the kernel: which keys are read how often, which are hot, how long sockets take."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np

from mmcache.model.errors import TracerError
from mmcache.model.key import Key
from mmcache.tracer.layout import (
    CONFIG,
    MARK,
    MOST_THRESHOLD,
    READ_KEY,
    SOCKET_TIMES,
    TOTALS,
    KeyReads,
    SocketTimes,
    Totals,
    key_reads,
    rates_of,
)
from mmcache.tracer.loaded import Loaded
from mmcache.tracer.mark import Mark
from mmcache.tracer.process import Traced, addresses
from mmcache.tracer.program import object_file

BTF = Path("/sys/kernel/btf/vmlinux")
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
MOST_KEYS = 65_536

_OVER_PLAIN = ("enter_sendto", "enter_sendmsg", "enter_recvfrom", "exit_recvfrom", "enter_close")
_OVER_ANY = (*_OVER_PLAIN, "enter_write", "enter_read", "exit_read")  # TLS reads and writes by these


class Trace:
    """Attaches at once; `close` detaches, and so does the end of this process. One thread at a time may use it."""

    def __init__(
        self,
        pid: int,
        hear: Callable[[Mark], object] = lambda mark: None,
        *,
        threshold: int = 100,
        sockets: bool = True,
        shared: str | None = None,
        most_keys: int = MOST_KEYS,
        btf: Path = BTF,
        tracefs: tuple[Path, ...] = TRACEFS,
    ) -> None:
        """pid: the process. hear: is told of each key that becomes hot, inside `poll`. threshold: reads a second above
        which a key is hot, at most 127. sockets: also time the connections that carry Redis commands, or, with
        `shared` (`host:port`), those to there, as is needed for TLS. most_keys: the kernel keeps that many, the
        least recently read go. Raises `TracerError`."""
        if not 1 <= threshold <= MOST_THRESHOLD:
            raise TracerError(f"a threshold is from 1 to {MOST_THRESHOLD} reads a second, not {threshold}")
        self._hear = hear
        self._shared = None if shared is None else addresses(shared)
        self._process = Traced(pid)
        self._loaded: Loaded | None = None
        self._peers: dict[int, str] = {}
        try:
            path, probe, semaphore = self._process.index()
            if not btf.exists():
                raise TracerError(
                    f"this kernel does not describe its types ({btf} is missing): it needs CONFIG_DEBUG_INFO_BTF"
                )
            calls = () if not sockets else _OVER_PLAIN if shared is None else _OVER_ANY
            if calls and not any((one / "events" / "syscalls").is_dir() for one in tracefs):
                raise TracerError(
                    f"no tracefs is mounted, which timing sockets needs: `mount -t tracefs tracefs {tracefs[0]}`, or "
                    "leave the sockets out (--no-sockets)"
                )
            device, inode, number = self._process.namespace()
            config = CONFIG.pack(device, inode, number, threshold, shared is not None, 0)
            self._loaded = Loaded(object_file(), config, ("read_probe", *calls), most_keys=most_keys)
            self._list_sockets()
            self._poll = self._loaded.ring("marks", self._heard)
            for name in calls:
                self._loaded.attach(name)
            self._loaded.attach_probe("read_probe", pid, path, probe, semaphore)
            if not self.alive:  # before that its number may have become another's
                raise TracerError(f"there is no process {pid} any more")
        except BaseException:
            self.close()
            raise

    def _heard(self, raw: bytes) -> None:
        at, _, reads, delay, waiting, key = MARK.unpack_from(raw)
        self._hear(Mark(Key.from_bytes(key), at, reads, delay, waiting))

    def _list_sockets(self) -> None:
        if self._shared is not None:
            wanted = {fd for fd, peer in self._process.peers().items() if peer in self._shared}
            self._kernel.list("listed_fds", wanted)

    @property
    def _kernel(self) -> Loaded:
        if self._loaded is None:
            raise TracerError("this trace is closed")
        return self._loaded

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs; what was counted can be read all the same."""
        return self._process.alive

    @property
    def marks_paths(self) -> list[Path]:
        """Where the process listens for marks, one for each cache that does (see `feedback.Marks`)."""
        return self._process.marks_paths()

    @property
    def owner(self) -> int:
        """The process's user. Raises `TracerError` when it has ended."""
        return self._process.owner()

    def poll(self, seconds: float = 0.0) -> int:
        """Wait that long for marks, and hand those that came to `hear`: how many. Raises what `hear` raises."""
        self._kernel  # noqa: B018 - it says so when it is closed
        return self._poll(int(seconds * 1000))

    def hottest(self, top: int | None = None) -> list[KeyReads]:
        """What is read most right now, then what was most in all; at most `top`."""
        keys, seen = self._kernel.read("keys", READ_KEY, 8)
        now = time.monotonic_ns()
        order = np.lexsort((seen["reads"], rates_of(seen, now)))[::-1][:top]
        return key_reads(keys[order], seen[order], now)

    def sockets(self) -> list[SocketTimes]:
        """Connections that were timed, the busiest first."""
        self._list_sockets()
        self._peers |= self._process.peers()  # also of those that are closed meanwhile
        found = []
        for raw, times in zip(*self._kernel.read("sockets", SOCKET_TIMES), strict=True):
            descriptor, count = int.from_bytes(raw.tobytes(), "little"), int(times["count"])
            half = int(np.searchsorted(np.cumsum(times["log2"]), max(1, count) / 2))
            found.append(
                SocketTimes(
                    descriptor, self._peers.get(descriptor, ""), count, int(times["sum"]) / max(1, count) / 1e9,
                    int(times["max"]) / 1e9, 2.0 ** (half + 1) / 1e6,
                )
            )  # fmt: skip
        return sorted(found, key=lambda one: -one.count)

    def totals(self) -> Totals:
        """Sums of all reads, exact."""
        one = self._kernel.read_one("totals", TOTALS)
        return Totals(*(int(one[name]) for name in TOTALS.names or ()))

    def close(self) -> None:
        """Take the probes away. Idempotent."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
