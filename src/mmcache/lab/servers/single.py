"""One server on loopback, or on a host of a network of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.servers.certificates import Certificates
from mmcache.lab.servers.clocks import clock_of
from mmcache.lab.servers.network import Host
from mmcache.lab.servers.process import Server, free_ports
from mmcache.scale.binaries import Binary, choose

_PORT, _TLS_PORT = 6379, 6380
"""On a host that has no other server."""


@dataclass(frozen=True)
class Setup:
    """How servers are made."""

    options: tuple[str, ...] = ()
    """Words of the command line."""
    binary: Binary | None = None
    ahead: float | None = None
    """Seconds of its clock before this machine's; None: it is this machine's, and libfaketime is not needed."""
    password: str | None = None
    users: Mapping[str, str] | None = None
    """Each ACL user's name with its rules, such as `{"tenant": "on >secret ~tenant:* +@all"}`."""
    tls: Certificates | None = None
    """Then it listens on `tls_port` besides."""

    def new(self, folder: Path, *options: str, at: Host | None = None) -> Server:
        """A server that is not started yet. Raises `AssetError` where something is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1) if at is None else (_PORT,)
        made = Server(self.binary or choose(tls=self.tls is not None), folder, port, password=self.password)
        words = [*self.options, *options]
        if at is not None:
            made.host, made.within = at.address, at.within
            words += ["--protected-mode", "no"]  # nobody else is on that network
        if self.password is not None:
            words += ["--requirepass", self.password, "--masterauth", self.password]
        for name, rules in (self.users or {}).items():
            words += ["--user", name, *rules.split()]
        if self.tls is not None:
            (made.tls_port,) = free_ports(1) if at is None else (_TLS_PORT,)
            words += ["--tls-port", str(made.tls_port), *self.tls.options()]
        if self.ahead is not None:
            made.offset_file = folder / "ahead"
            made.environment = clock_of(made.offset_file, self.ahead)
        made.options = words
        return made


@contextmanager
def server(
    folder: Path,
    ahead: float | None = None,
    *options: str,
    binary: Binary | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
    tls: Certificates | None = None,
    at: Host | None = None,
) -> Iterator[Server]:
    """Start one in `folder`, with its clock `ahead` seconds (None = this machine's clock, no libfaketime needed).

    It listens on a free port of 127.0.0.1 (or on the host `at`), keeps nothing on disk, and is ended by its own process
    id. For the rest see `Setup`. Raises `AssetError` where something is missing, or it does not start.
    """
    started = Setup(options, binary, ahead, password, users, tls).new(folder, at=at)
    try:
        started.start()
        started.await_answer()
        yield started
    finally:
        started.stop()
