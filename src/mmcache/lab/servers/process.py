"""`Server`: a server process that can be killed, paused and started again, and that does not outlive its owner."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmcache.lab.servers import clocks
from mmcache.model.errors import AssetError, TierError
from mmcache.scale.binaries import Binary
from mmcache.scale.talk import Word, ask

PATIENCE_SECONDS = 30.0
BUS = 10_000
"""A cluster's nodes talk to each other on the port so much higher."""
_PORTS = range(10_000, 20_000)
"""Below what the kernel gives to clients, so that nobody takes the port of a server that is to come back."""
_BLOCK = 100
"""Ports that one process has for itself: whom it gave one may not listen yet, or be down for a while."""
_given: set[int] = set()
"""To servers of this process."""
_blocks: dict[int, tuple[int, int]] = {}
"""First port of a block that is ours → the process that claimed it, and its open socket that shows it to others."""


@dataclass
class Server:
    """A server process. Start it in a thread that outlives it: on Linux it ends with that thread, however that ends."""

    binary: Binary
    folder: Path
    port: int
    options: Sequence[str] = ()
    host: str = "127.0.0.1"
    password: str | None = None
    """Of the default user."""
    tls_port: int | None = None
    offset_file: Path | None = None
    """Of its clock, when it has its own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    within: Sequence[str] = ()
    """The command that runs it elsewhere, such as in a network namespace."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self.process is not None, "not started yet"
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is there, paused or not."""
        return self.process is not None and self.process.poll() is None

    @property
    def url(self) -> str:
        """What a cache is given as `shared=`."""
        return f"{'valkey' if self.tls_port is None else 'valkeys'}://{self.host}:{self.public_port}"

    @property
    def public_port(self) -> int:
        """Of its users, with TLS where it has it; `port` is always without."""
        return self.port if self.tls_port is None else self.tls_port

    def ask(self, *words: Word) -> Any:
        """A command as the default user. Raises `TierError` for an error reply, `OSError` when it is not there."""
        return ask(self.port, *words, host=self.host, password=self.password)

    def start(self) -> None:
        """Start it, or start it again with the files it left. Raises `AssetError` when it does not come up."""
        assert not self.alive, "it runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log"
        command = [*bound_to_us(), *self.within, self.binary.command(self.folder), *self.arguments()]
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=self.folder,
                env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment},
            )  # fmt: skip

    def arguments(self) -> list[str]:
        """The words after the program's name."""
        return [
            "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder), "--save", "",
            "--appendonly", "no", "--repl-diskless-sync-delay", "0", *self.options,
        ]  # fmt: skip

    def await_answer(self) -> None:
        """Until it answers. Raises `AssetError` when it does not."""
        if not until(self._answers, lambda: not self.alive):
            log = (self.folder / "log").read_text(errors="replace")[-500:]
            self.stop()
            raise AssetError(f"a {self.binary} did not start: {log}")

    def _answers(self) -> bool:
        try:
            return bool(self.ask("PING") == "PONG")
        except (OSError, TierError):  # not yet there, or still loading
            return False

    def kill(self) -> None:
        """As if the power was cut: SIGKILL."""
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def pause(self) -> None:
        """It keeps its connections, and does nothing: SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on, not knowing that time has passed: SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start a killed one again, in the same folder on the same port, and wait for it. Raises `AssetError`."""
        self.start()
        self.await_answer()

    def set_clock(self, ahead: float) -> None:
        """Its wall clock is so many seconds ahead of this machine's from now on. Only for one with its own clock.

        It looks at the clock once per turn of its loop, so that the next command or two may still see the old time.
        """
        assert self.offset_file is not None, "it was started without a clock of its own"
        clocks.set_clock(self.offset_file, ahead)

    def stop(self) -> None:
        """End it, and see it end."""
        ask_to_stop([self])

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self.process is not None
            self.process.send_signal(number)


def ask_to_stop(servers: Sequence[Server]) -> None:
    """End them all at once, and see them end."""
    running = [server.process for server in servers if server.alive and server.process is not None]
    for process in running:
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a paused one hears nothing else
    for process in running:
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true: Callable[[], bool], hopeless: Callable[[], bool] = lambda: False) -> bool:
    """Wait until something is true; False when it is not after half a minute, or has become hopeless."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := true()) and time.monotonic() < end and not hopeless():
        time.sleep(0.02)
    return found


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on, nor on the ones `BUS` higher. Raises `AssetError` when there are none left.

    Others who ask here get other ones, as long as this process runs.
    """
    chosen: list[int] = []
    for port in _ours():
        if len(chosen) == count:
            return chosen
        if port not in _given and _free(host, port) and _free(host, port + BUS):
            _given.add(port)
            chosen.append(port)
    raise AssetError("no free ports are left for servers")


def free_row(count: int) -> int:
    """The first of so many in a row, for who takes whatever is free from there on. Raises `AssetError`."""
    row = free_ports(count)
    while row[-1] - row[0] != count - 1:
        row = [*row[1:], *free_ports(1)]
    return row[0]


def _ours() -> Iterator[int]:
    """Of blocks that are ours, then of further ones that nobody has."""
    mine = [first for first, (pid, _) in _blocks.items() if pid == os.getpid()]  # a forked child has others
    for first in mine:
        yield from range(first, first + _BLOCK)
    for first in random.SystemRandom().sample(range(_PORTS.start, _PORTS.stop, _BLOCK), len(_PORTS) // _BLOCK):
        if first not in _blocks and (claim := _claimed(first)) is not None:
            _blocks[first] = os.getpid(), claim
            yield from range(first, first + _BLOCK)
    yield from random.SystemRandom().sample(_PORTS, len(_PORTS))  # rather another's than none


def _claimed(first: int) -> int | None:
    """A name that only one process can have, and that goes with it: of an abstract socket, where there are such."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if sys.platform == "linux":
            claim.bind(f"\0mmcache-lab-ports-{first}")
    except OSError:
        claim.close()
        return None
    return claim.detach()  # a socket that is still open at the end would be warned of


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def bound_to_us() -> list[str]:
    """The words in front of a command that must not be left behind by a crash.

    The kernel kills it when the thread that started it is gone (PR_SET_PDEATHSIG). Without `setpriv` there are none.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
