"""`Traced`: what a process has: the mapped index, its sockets, its PID namespace. Reads /proc, changes nothing."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmcache.model.errors import TracerError
from mmcache.tracer.elf import Elf
from mmcache.tracer.libbpf import NEEDS

_FIRST_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
PROBE, SEMAPHORE = "mmcache_probe_read", "mmcache_probe_semaphore"
_MAPPED = re.compile(
    r"^([0-9a-f]+-[0-9a-f]+) r-xp \S+ \S+ \d+\s+(\S*/_hit_index\.[^/\s]*so)( \(deleted\))?$", re.MULTILINE
)


class Traced:
    """One process, from now until it ends; another one that gets its number later is not taken for it."""

    def __init__(self, pid: int) -> None:
        """Raises `TracerError` where there is no such process."""
        self.pid = pid
        self._place = Path(f"/proc/{pid}")
        self._descriptor = -1
        if pid < 1:
            raise TracerError(f"a process id is 1 or more, not {pid}")
        with self._reading():
            self._descriptor = os.pidfd_open(pid)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise TracerError(
                f"process {self.pid} cannot be looked into: {NEEDS}, and one that the system does not protect"
            ) from error
        except (FileNotFoundError, ProcessLookupError) as error:
            raise TracerError(f"there is no process {self.pid}") from error
        except OSError as error:  # a thread's number, from Linux 6.9 on
            if error.errno == errno.ENOSYS:
                raise TracerError("this kernel or its sandbox has no pidfd_open(), which tracing needs") from error
            raise TracerError(
                f"{self.pid} cannot be watched: {error}; give a process's number, not a thread's"
            ) from error

    def namespace(self) -> tuple[int, int, int]:
        """Device and inode of its PID namespace, and its number there; zeros and its number where we are in the first
        one, by whose numbers the kernel knows all."""
        with suppress(OSError):
            if os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE:
                return 0, 0, self.pid
        with self._reading():
            there = os.stat(self._place / "ns" / "pid")
        numbers = self._status("NSpid")
        return there.st_dev, there.st_ino, int(numbers[-1]) if numbers else self.pid

    def owner(self) -> int:
        """The user whose files it makes."""
        return int(self._status("Uid")[-1])

    def _status(self, name: str) -> list[str]:
        with self._reading():
            found = re.search(rf"^{name}:\s+(.*)$", (self._place / "status").read_text(), re.MULTILINE)
        return found[1].split() if found else []

    def index(self) -> tuple[str, int, int]:
        """The compiled index that it has mapped: path, place of the probe in it, place of its semaphore."""
        with self._reading():
            mapped = _MAPPED.search((self._place / "maps").read_text())
        if mapped is None:
            raise TracerError(self._why_none())
        path = self._place / "map_files" / mapped[1]  # in its mount namespace; also if replaced
        if not os.access(path, os.R_OK):
            path = self._place / "root" / mapped[2].lstrip("/")
        with self._reading():
            offsets = Elf.parse(path.read_bytes()).offsets
        if PROBE not in offsets or SEMAPHORE not in offsets:
            raise TracerError(
                f"{mapped[2]} in process {self.pid} has no probe; reinstall mmcache there, and restart it"
            )
        return str(path), offsets[PROBE], offsets[SEMAPHORE]

    def _why_none(self) -> str:
        plain = ""
        with suppress(OSError):
            if any(one.startswith(b"MMCACHE_PURE=") for one in (self._place / "environ").read_bytes().split(b"\0")):
                plain = "; its MMCACHE_PURE is set: start it without"
        return (
            f"process {self.pid} has no compiled index of mmcache mapped: it runs no mmcache, has opened no cache yet, "
            f"or runs the plain Python index, which has no probe{plain}"
        )

    def peers(self) -> dict[int, str]:
        """Connected sockets: descriptor → `host:port` of the other side, or its path."""
        ends: dict[str, str] = {}
        found: dict[int, str] = {}
        with suppress(OSError):
            for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
                for line in (self._place / "net" / name).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] != "0A":  # LISTEN
                        ends[fields[9]] = _address(family, fields[2])
            for descriptor, where in self._descriptors():
                if where.startswith("socket:["):
                    found[descriptor] = ends.get(where[8:-1], "a local socket")
        return found if self.alive else {}  # else its number may be another's by now

    def _descriptors(self) -> Iterator[tuple[int, str]]:
        for one in os.listdir(self._place / "fd"):
            with suppress(OSError):  # closed meanwhile
                yield int(one), os.readlink(self._place / "fd" / one)

    def marks_paths(self) -> list[Path]:
        """Where it listens for marks (see `feedback.Marks`), one for each cache, as this process reaches them. What it
        inherited is its parent's: that has another number in its name."""
        found = []
        with suppress(OSError):
            numbers = self._status("NSpid") or [str(self.pid)]
            own = re.compile(rf"/{numbers[-1]}\.\d+\.mmcache-marks$")
            held = {where for _, where in self._descriptors()}
            for line in (self._place / "net" / "unix").read_text().splitlines()[1:]:
                fields = line.split(maxsplit=7)
                if len(fields) == 8 and own.search(fields[7]) and f"socket:[{fields[6]}]" in held:
                    found.append(self._place / "root" / fields[7].lstrip("/"))
        return found if self.alive else []

    def close(self) -> None:
        """Let it go. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def addresses(shared: str) -> set[str]:
    """`host:port` as `Traced.peers` names it: one for each address of the host. Raises `TracerError`."""
    host, _, port = shared.rpartition(":")
    if not host or not port.isdecimal():
        raise TracerError(f"{shared!r} is no host:port")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise TracerError(f"{shared} is not known here: {error}") from error
    return {_written(str(address[0]), int(port)) for *_, address in found}


def _written(address: str, port: int) -> str:
    address = address.removeprefix("::ffff:") if "." in address else address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _address(family: int, text: str) -> str:
    host, port = text.split(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    address = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return _written(address, int(port, 16))
