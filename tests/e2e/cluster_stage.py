"""A local cluster for tests: what its commands say, and keys that are put there and looked for."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from tests.patience import until

from mmcache.cli.app import run
from mmcache.lab.servers.cluster import slot_of
from mmcache.lab.servers.process import free_row
from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.local import Handle
from mmcache.scale.local.locks import is_held
from mmcache.scale.talk import Command, Wire

PORTS = 20
"""For all members that a cluster ever has."""


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
        yield say("up", "--port", str(free_row(PORTS)), *options, folder=folder)
    finally:
        try:
            Handle(folder).down()
        except ScaleError as error:
            if "no cluster" not in str(error):
                raise


def _by_port(handle: Handle, keys: Sequence[bytes]) -> dict[int, list[bytes]]:
    """Whose slot nobody serves at the moment is left out."""
    seen = handle.look()
    port = {member.name: member.port for member in seen.members}
    primaries = [(name, node) for name, node in seen.nodes.items() if not node.primary]
    owner = {slot: port[name] for name, node in primaries for slot in node.slots}
    found: dict[int, list[bytes]] = {}
    for key in keys:
        if (slot := slot_of(key)) in owner:
            found.setdefault(owner[slot], []).append(key)
    return found


def _told(folder: Path, command: Callable[[bytes], Command], keys: Sequence[bytes], *then: Command) -> dict[bytes, Any]:
    """What each key's owner says to its command; `then` is told to each afterwards, and its reply is 1.

    A node that stood still for seconds has been replaced meanwhile: then another is asked.
    """
    handle, replies = Handle(folder), dict[bytes, Any]()

    def asked() -> bool:
        for port, mine in _by_port(handle, [key for key in keys if key not in replies]).items():
            with suppress(OSError), Wire("127.0.0.1", port, password=handle.password) as wire:
                said = wire.call([command(key) for key in mine])
                assert then == () or wire.call(then, 40.0) == [1]
                replies.update(
                    (key, one) for key, one in zip(mine, said, strict=True) if not isinstance(one, TierError)
                )
        return len(replies) == len(keys)

    until(asked, f"an answer for all of {len(keys)} keys")
    return replies


def keys(count: int) -> list[bytes]:
    return [b"key:%d" % number for number in range(count)]


def put(folder: Path, count: int) -> None:
    """Each where it belongs, and on a replica as well."""
    told = _told(folder, lambda key: ("SET", key, key * 50), keys(count), ("WAIT", 1, 30_000))
    assert set(told.values()) == {"OK"}


def missing(folder: Path, count: int) -> list[bytes]:
    """Keys of `put` that are not there, or are not what they were."""
    return [key for key, reply in _told(folder, lambda key: ("GET", key), keys(count)).items() if reply != key * 50]


def unwatched(folder: Path) -> bool:
    """Whether the supervisor has ended to the last: who was killed holds its lock a little longer than it is seen."""
    return not is_held(Handle(folder).files.supervisor_lock)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
