"""Marks reach the cache of the process that listens; nothing that comes instead of one does any harm."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.model.errors import TracerError
from mmcache.model.key import Key
from mmcache.tracer import Mark, Marks
from mmcache.tracer.feedback import Sender
from mmcache.tracer.process import Traced

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tracer is for Linux")

KEY = Key(bytes(range(16)), bytes(range(16, 32)))


def mark(key: Key = KEY) -> Mark:
    return Mark(key, 1, 101, 5, 0)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come about within a minute"
        time.sleep(0.01)


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="16MiB") as made:
        yield made


class Noted:
    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def marked(self, mark: Mark) -> None:
        self.marks.append(mark)
        raise LookupError("a hearer that fails")


def test_a_mark_heats_the_cache_and_reaches_who_hears(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    heated: list[Any] = []
    monkeypatch.setattr(cache.answers, "heat", heated.extend)
    one, two = Noted(), Noted()
    with Marks(cache, [one, two]) as marks:
        sender = Sender(marks.path)
        sender.send(mark())
        sender.send(mark())
        until(lambda: len(two.marks) == 2)
        sender.close()
        assert (sender.sent, sender.lost, marks.heard, marks.refused) == (2, 0, 2, 0)
    assert heated == [KEY, KEY]
    assert one.marks == two.marks == [mark(), mark()]
    assert not marks.path.exists()


def test_heat_counts_nothing_and_serves_nothing(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="16MiB") as first:
        key = first.key("question", modality="text", signature="toy-1")
        first.put(key, np.arange(4))
        first.flush()
    with Cache(tmp_path, memory="16MiB") as cache:
        assert cache.peek(key) is None
        cache.answers.heat([key, KEY])
        assert cache.stats().tiers["memory"].blocks == 1  # it was on disk, and is in memory now
        assert cache.stats().hits == 0
        assert np.array_equal(cache.peek(key), np.arange(4))
        assert cache.peek(KEY) is None


def test_what_is_no_mark_is_refused(cache: Cache) -> None:
    noted = Noted()
    with Marks(cache, [noted]) as marks, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.connect(str(marks.path))
        for raw in (b"", b"x", b"mmcmark1", mark().pack() + b"!", os.urandom(88), os.urandom(250)):
            other.send(raw)
        other.send(mark().pack())
        until(lambda: bool(noted.marks))
        assert (marks.heard, marks.refused) == (1, 6)


@pytest.mark.skipif(os.geteuid() != 0, reason="being another user needs root")
def test_another_user_is_refused(cache: Cache) -> None:
    with Marks(cache) as marks:
        os.chmod(marks.path, 0o777)
        os.chmod(marks.path.parent, 0o777)
        child = os.fork()
        if child == 0:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                    other.connect(str(marks.path))
                    os.setuid(65534)
                    other.send(mark().pack())
                    os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            pytest.skip("this root may not become another user")
        until(lambda: marks.refused == 1)
        assert marks.heard == 0


def test_where_a_process_listens_is_found(cache: Cache) -> None:
    process = Traced(os.getpid())
    try:
        assert process.marks_paths() == []
        with Marks(cache) as marks, Marks(cache, folder=marks.path.parent) as second:  # of another cache
            if str(marks.path) not in Path("/proc/self/net/unix").read_text():
                pytest.skip("this system does not list its local sockets")
            found = process.marks_paths()
            assert {one.resolve().name for one in found} == {marks.path.name, second.path.name}
            assert any(one.samefile(marks.path) for one in found)
            assert os.stat(marks.path).st_mode & 0o777 == 0o600
            assert os.stat(marks.path).st_uid == process.owner()
            assert _of_a_child(lambda number: len(_paths_of(number))) == 0  # it inherits the sockets
        assert process.marks_paths() == []
    finally:
        process.close()


def _paths_of(pid: int) -> list[Path]:
    process = Traced(pid)
    try:
        return process.marks_paths()
    finally:
        process.close()


def _of_a_child(look: Callable[[int], int]) -> int:
    """What is seen of a forked child, while that does nothing."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                signal.pause()
        finally:
            os._exit(1)
    try:
        return look(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_child_that_ends_takes_nothing_away() -> None:
    program = """
import os, sys
from mmcache import Cache
from mmcache.tracer import Marks
marks = Marks(Cache(memory="1MiB"))
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert marks.path.exists()
print(marks.path.parent)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).exists()  # the process itself does


def test_a_swept_folder_does_not_keep_it_from_closing(cache: Cache) -> None:
    marks = Marks(cache)
    marks.path.unlink()
    marks.path.parent.rmdir()
    marks.close()
    assert not marks._thread.is_alive()


def test_marks_go_to_a_socket_of_that_user_only(cache: Cache, tmp_path: Path) -> None:
    with Marks(cache) as marks:
        Sender(marks.path, os.geteuid()).close()
        with pytest.raises(TracerError, match="no socket of that process's user"):
            Sender(marks.path, os.geteuid() + 1)
        laid = tmp_path / "1.0.mmcache-marks"
        laid.symlink_to(marks.path)
        with pytest.raises(TracerError, match="no socket of that process's user"):
            Sender(laid, os.geteuid())


def test_a_forked_child_leaves_the_listener_alone(cache: Cache) -> None:
    with Marks(cache) as marks:
        child = os.fork()
        if child == 0:
            try:
                marks.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert marks.path.exists()
        sender = Sender(marks.path)
        sender.send(mark())
        sender.close()
        until(lambda: marks.heard == 1)


def test_a_sender_never_waits_and_never_fails(cache: Cache) -> None:
    marks = Marks(cache)
    sender = Sender(marks.path)
    marks.close()
    marks.close()
    sender.send(mark())
    assert (sender.sent, sender.lost) == (0, 1)
    sender.close()
    with pytest.raises(TracerError, match="cannot be reached"):
        Sender(marks.path)


def test_a_folder_that_cannot_hold_a_socket(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(TracerError, match="cannot be listened for"):
        Marks(cache, folder=tmp_path / "nowhere")
