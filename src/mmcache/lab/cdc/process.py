"""Processes of the lab that are killed on purpose: theirs and their children's, by process id and nothing else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mmcache.model.errors import AssetError

PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.02


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def await_ready(
    process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, name: str, seconds: float = PATIENCE_SECONDS
) -> None:
    """Until `ready` says so. Raises `AssetError` with the end of `log` when the process ends before, or time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return
        time.sleep(_PAUSE_SECONDS)
    said = log.read_text(errors="replace")[-1500:]
    raise AssetError(f"{name} did not get ready within {seconds:g} s (exit {process.poll()}): {said}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL it and all that it started, at once, as when the power is cut: nothing is told, nothing flushed."""
    family = [process.pid, *_descendants(process.pid)] if process.poll() is None else []
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    for pid in family[1:]:
        _await_gone(pid)


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM, seconds: float = 10.0) -> None:
    """Ask it to end; kill it where it does not."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill(process)


def _descendants(pid: int) -> list[int]:
    """Process ids of all that descend from `pid`, parents first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *_descendants(child))]


def _await_gone(pid: int) -> None:
    """Until it no longer runs (a zombie that its new parent has not fetched yet runs no more)."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(_PAUSE_SECONDS)
