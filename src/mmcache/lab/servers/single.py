"""One server on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mmcache.lab.servers.binaries import Binary, choose
from mmcache.lab.servers.certificates import Certificates
from mmcache.lab.servers.clocks import clock_of
from mmcache.lab.servers.process import Server, free_ports


@contextmanager
def server(
    folder: Path,
    ahead: float | None = None,
    *options: str,
    binary: Binary | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
    tls: Certificates | None = None,
) -> Iterator[Server]:
    """Start one in `folder`, with its clock `ahead` seconds (None = this machine's clock, no libfaketime needed).

    It listens on a free port of 127.0.0.1, keeps nothing on disk, and is ended by its own process id. `users` is each
    ACL user's name with its rules, such as `{"tenant": "on >secret ~tenant:* +@all"}`. With `tls` it listens on
    `tls_port` besides. Raises `AssetError` where something is missing, or it does not start.
    """
    started = new_server(
        folder,
        free_ports(1)[0],
        ahead,
        *options,
        binary=binary or choose(tls=tls is not None),
        password=password,
        users=users,
    )
    if tls is not None:
        (started.tls_port,) = free_ports(1)
        started.options = [*started.options, "--tls-port", str(started.tls_port), *tls.options()]
    try:
        started.start()
        started.await_answer()
        yield started
    finally:
        started.stop()


def new_server(
    folder: Path,
    port: int,
    ahead: float | None = None,
    *options: str,
    binary: Binary | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
) -> Server:
    """One that is not started yet; see `server`. Raises `AssetError`."""
    folder.mkdir(parents=True, exist_ok=True)
    words = list(options)
    if password is not None:
        words += ["--requirepass", password, "--masterauth", password]
    for name, rules in (users or {}).items():
        words += ["--user", name, *rules.split()]
    started = Server(binary or choose(), folder, port, words, password=password)
    if ahead is not None:
        started.offset_file = folder / "ahead"
        started.environment = clock_of(started.offset_file, ahead)
    return started
