"""A local cluster for tests: what its commands say, and keys that are put there and looked for."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from mmcache.cli.app import run
from mmcache.lab.servers.cluster import slot_of
from mmcache.model.errors import ScaleError
from mmcache.scale.local import Handle
from mmcache.scale.talk import Wire

FIRST_PORT = 10_000 + os.getpid() * 41 % 9_000


def say(*words: str, folder: Path, code: int | None = 0) -> Any:
    """What `mmcache cluster WORDS… --json` prints; it ends with `code` (None: any). Only in the main thread."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = run(["cluster", *words, "--json", "--folder", str(folder)])
    assert code is None or ended == code, f"{words}: {ended}\n{out.getvalue()}\n{err.getvalue()}"
    return json.loads(out.getvalue().splitlines()[-1])


def start(*words: str, folder: Path) -> subprocess.Popen[str]:
    """The same in a process of its own, with Ctrl-C ignored, as a shell starts it behind an &."""
    command = [sys.executable, "-m", "mmcache.cli", "cluster", *words, "--json", "--folder", str(folder)]
    behind = ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *command]
    return subprocess.Popen(behind, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def brought_up(folder: Path, *options: str) -> Iterator[Any]:
    """What `up` said; the cluster is ended at the end, whatever has become of it."""
    try:
        yield say("up", "--port", str(FIRST_PORT), *options, folder=folder)
    finally:
        try:
            Handle(folder).down()
        except ScaleError as error:
            if "no cluster" not in str(error):
                raise


def _by_port(handle: Handle, keys: list[bytes]) -> dict[int, list[bytes]]:
    seen = handle.look()
    port = {member.name: member.port for member in seen.members}
    primaries = [(name, node) for name, node in seen.nodes.items() if not node.primary]
    owner = {slot: port[name] for name, node in primaries for slot in node.slots}
    found: dict[int, list[bytes]] = {}
    for key in keys:
        found.setdefault(owner[slot_of(key)], []).append(key)
    return found


def keys(count: int) -> list[bytes]:
    return [b"key:%d" % number for number in range(count)]


def put(folder: Path, count: int) -> None:
    """Each where it belongs, and on a replica as well."""
    handle = Handle(folder)
    for port, mine in _by_port(handle, keys(count)).items():
        with Wire("127.0.0.1", port, password=handle.password) as wire:
            assert wire.call([("SET", key, key * 50) for key in mine]) == ["OK"] * len(mine)
            assert wire.call([("WAIT", 1, 30_000)]) == [1]


def missing(folder: Path, count: int) -> list[bytes]:
    """Keys of `put` that are not there, or are not what they were."""
    handle = Handle(folder)
    gone = []
    for port, mine in _by_port(handle, keys(count)).items():
        with Wire("127.0.0.1", port, password=handle.password) as wire:
            replies = wire.call([("GET", key) for key in mine])
        gone += [key for key, reply in zip(mine, replies, strict=True) if reply != key * 50]
    return gone


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
