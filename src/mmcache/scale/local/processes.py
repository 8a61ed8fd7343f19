"""The processes that work in a folder: found by the kernel's word; no stranger is ever signalled for one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from mmcache.model.errors import ScaleError

_PROC = Path("/proc")
_GONE = " (deleted)"
SERVERS = frozenset({"valkey-server", "redis-server", "redis-check-rdb", "valkey-check-rdb"})
"""Names of a server's file (Debian's is one file for all programs)."""


def require_proc() -> None:
    """Raises `ScaleError` where the kernel cannot be asked in this way."""
    if sys.platform != "linux" or not (_PROC / "self" / "cwd").exists():
        raise ScaleError("a local cluster needs Linux with /proc mounted; elsewhere run it in a container")


def boot() -> str:
    """Another text after each start of the machine."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def below(folder: Path, names: Collection[str] = SERVERS) -> dict[str, list[int]]:
    """Our processes that work in a folder of `folder`, by its name, the oldest first: a server's own children, which
    send a copy to a replica, work where it does."""
    found: dict[str, list[int]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (place := _place(int(entry), names)) is not None and place.parent == folder:
            found.setdefault(place.name, []).append(int(entry))
    return {name: sorted(pids, key=began) for name, pids in found.items()}


def works_in(pid: int, folder: Path, names: Collection[str] = SERVERS) -> bool:
    """Whether this process is one of ours, and works in `folder` (which may be deleted)."""
    return _place(pid, names) == folder


def send(pid: int, number: signal.Signals, is_it: Callable[[int], bool]) -> bool:
    """Signal a process that `is_it`; whether it was. A pid may be another's at any moment: it is held first (pidfd),
    and looked at then. Raises `ScaleError`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise ScaleError(f"cannot get hold of process {pid}: {error}") from error
    try:
        if not is_it(pid):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        return True
    finally:
        os.close(handle)


def start(command: Sequence[str], folder: Path, log: Path, keep: int) -> int:
    """A server in a session of its own, which outlives us; its process id, for `reaped`. keep: the descriptor of its
    lock, which it holds from now on. Raises `OSError`."""
    with suppress(OSError):
        os.replace(log, log.with_suffix(".old"))
    sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, pass_fds=[keep],
            start_new_session=True, env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
    finally:
        os.close(sink)
    process.returncode = 0  # that it runs when we end is meant so: nobody is to be warned
    return process.pid


def reaped(pid: int) -> bool:
    """Whether a child of ours has ended; then the kernel forgets it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def began(pid: int) -> int:
    """When it did, in clock ticks since the machine's start: with its number, this names one process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return sys.maxsize
    return int(text.rpartition(")")[2].split()[19])


def _place(pid: int, names: Collection[str]) -> Path | None:
    """Where a program of ours with one of these names works; None for all others."""
    process = _PROC / str(pid)
    try:
        if process.stat().st_uid != os.geteuid():
            return None
        place = os.readlink(process / "cwd")
        program = os.readlink(process / "exe")
    except OSError:
        return None
    return Path(place.removesuffix(_GONE)) if Path(program.removesuffix(_GONE)).name in names else None
