"""`mmcache`, killed at each kind of command once before it is sent and once after: `operator_cut.py FILE words…`.

A kind is a method and a resource of the API server, or a command of Valkey, that changes something. FILE holds the
kinds that had their turn, so that the next process gets further.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import httpx2

from mmcache.cli import main
from mmcache.scale.talk import Command, Wire

_READING = {
    "INFO", "PING", "ROLE", "AUTH", "DBSIZE", "TIME", "CONFIG GET", "ACL LIST", "ACL GETUSER", "COMMAND", "HELLO",
}  # fmt: skip
_OF_CLUSTER = {
    "MEET", "REPLICATE", "ADDSLOTS", "ADDSLOTSRANGE", "DELSLOTS", "SETSLOT", "FAILOVER", "FORGET", "RESET",
    "MIGRATESLOTS", "CANCELSLOTMIGRATIONS", "BUMPEPOCH", "SET-CONFIG-EPOCH", "FLUSHSLOTS",
}  # fmt: skip


class Fate:
    """When this process ends."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        self._had = set(file.read_text().splitlines()) if file.exists() else set()

    def meets(self, kind: str, when: str) -> None:
        """It does not come back from here, the first time."""
        with self._lock:
            if f"{kind}, {when}" in self._had or (when == "after" and f"{kind}, before" not in self._had):
                return
            with self._file.open("a") as file:
                file.write(f"{kind}, {when}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def asked_of_the_api(method: str, url: str) -> str | None:
    """The kind of a request, or None where it changes nothing."""
    parts = url.partition("?")[0].split("/")
    if method.upper() == "GET" or "namespaces" not in parts:
        return None
    rest = parts[parts.index("namespaces") + 2 :]
    return " ".join([method.upper(), rest[0], *rest[2:]]) if rest else None


def asked_of_a_node(command: Command) -> str | None:
    """The kind of a command, or None where it changes nothing."""
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in command]
    first, second = words[0].upper(), words[1].upper() if len(words) > 1 else ""
    if first == "CLUSTER":
        if second == "SETSLOT":
            return f"CLUSTER SETSLOT {words[3].upper()}"
        return f"CLUSTER {second}" if second in _OF_CLUSTER else None
    return None if first in _READING or f"{first} {second}" in _READING else first


def fated(fate: Fate) -> None:
    """From now on."""
    request, send, kopfs = httpx2.Client.request, Wire.send, aiohttp.ClientSession._request

    def requested(client: Any, method: str, url: Any, **more: Any) -> Any:
        kind = asked_of_the_api(method, str(url))
        if kind is None:
            return request(client, method, url, **more)
        fate.meets(kind, "before")
        answer = request(client, method, url, **more)
        fate.meets(kind, "after")
        return answer

    def sent(wire: Wire, asked: Sequence[Command], seconds: float | None = None) -> None:
        kinds = [kind for kind in map(asked_of_a_node, asked) if kind is not None]
        for kind in kinds:
            fate.meets(kind, "before")
        send(wire, asked, seconds)
        for kind in kinds:
            fate.meets(kind, "after")

    async def asked(session: Any, method: str, url: Any, **more: Any) -> Any:
        kind = asked_of_the_api(method, str(url).partition("://")[2])
        if kind is None:
            return await kopfs(session, method, url, **more)
        fate.meets(f"kopf: {kind}", "before")
        answer = await kopfs(session, method, url, **more)
        fate.meets(f"kopf: {kind}", "after")
        return answer

    for where, name, what in (
        (httpx2.Client, "request", requested), (Wire, "send", sent), (aiohttp.ClientSession, "_request", asked),
    ):  # fmt: skip
        patch.object(where, name, what).start()


if __name__ == "__main__":
    fated(Fate(Path(sys.argv[1])))
    raise SystemExit(main(sys.argv[2:]))
