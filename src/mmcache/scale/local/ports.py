"""Ports of this machine that a node may listen on."""

from __future__ import annotations

import socket
from collections.abc import Collection

from mmcache.model.errors import ScaleError

BUS = 10_000
"""The nodes talk to each other on the port so much higher."""
LAST = 65_535 - BUS
HOST = "127.0.0.1"


def free_port(first: int, taken: Collection[int]) -> int:
    """The lowest from `first` on that nobody listens on, nor on the one `BUS` higher. Raises `ScaleError`."""
    for port in range(first, LAST + 1):
        if port not in taken and port + BUS not in taken and port - BUS not in taken and is_free(port):
            return port
    raise ScaleError(f"no free port from {first} on, with the one {BUS} higher: give another --port")


def require_ports(first: int, count: int) -> None:
    """Raises `ScaleError` where so many nodes find no port."""
    taken: set[int] = set()
    for _ in range(count):
        taken.add(free_port(first, taken))


def is_free(port: int) -> bool:
    """Both of it. Another process may still be quicker."""
    return _free(port) and _free(port + BUS)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections are no listener
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
