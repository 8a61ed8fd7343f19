"""Where a host is. A resolver may hang for long; who asks it waits for as long as his limit says."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from typing import Any

from mmcache.tiers.valkey.address import Node
from mmcache.tiers.valkey.limit import Limit

Places = list[tuple[Any, Any, int, str, Any]]
"""As `socket.getaddrinfo` returns them."""


def places(node: Node, limit: Limit) -> Places:
    """Raises `OSError` (`TimeoutError` when time is up), `ValueError` for what can be no name."""
    try:
        return socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # it is a name
    found: Future[Places] = Future()

    def ask() -> None:
        try:
            found.set_result(socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM))
        except (OSError, ValueError, OverflowError) as error:
            found.set_exception(error)

    try:
        threading.Thread(target=ask, name="mmcache-resolve", daemon=True).start()
    except RuntimeError:  # the interpreter ends, or there are too many threads
        ask()
    return found.result(max(limit.left(), 0.001))
