"""The ring of invalidations: writers take turns, whatever else happens in their process, and no descriptor leaks."""

from __future__ import annotations

import fcntl
import gc
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mmcache.model.errors import TierError
from mmcache.model.key import Key
from mmcache.testing.frames import make_key
from mmcache.tiers.broadcast import SLOTS, Broadcast


def is_locked(path: Path) -> bool:
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def publish_and(ring: Broadcast, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish; `act` while the ring is being written."""
    append = ring._append

    def acting(keys: Sequence[Key]) -> None:
        act()
        append(keys)

    monkeypatch.setattr(ring, "_append", acting)
    ring.publish([make_key(1)])


def test_a_writer_excludes_others_until_it_has_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "ring", []
    ring = Broadcast(path)
    publish_and(ring, lambda: seen.append(is_locked(path)), monkeypatch)
    assert (seen, is_locked(path)) == ([True], False)


def test_closing_another_file_of_the_process_frees_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX locks would be gone."""
    path, seen = tmp_path / "ring", []
    ring = Broadcast(path)

    def act() -> None:
        path.open("rb").close()
        seen.append(is_locked(path))

    publish_and(ring, act, monkeypatch)
    assert seen == [True]


def test_rings_of_one_process_lose_nothing(tmp_path: Path) -> None:
    rings = [Broadcast(tmp_path / "ring") for _ in range(3)]
    threads = [
        threading.Thread(target=lambda ring: [ring.publish([make_key(1)] * 50) for _ in range(100)], args=(ring,))
        for ring in rings
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rings[0].sequence[0] == 3 * 50 * 100


def test_a_forked_child_takes_a_lock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Broadcast(tmp_path / "ring")
    ring.publish([make_key(0)])
    (from_child, to_parent), (from_parent, to_child) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        with monkeypatch.context() as patched:
            publish_and(ring, lambda: (os.write(to_parent, b"x"), os.read(from_parent, 1)), patched)
        os._exit(0)
    assert os.read(from_child, 1) == b"x"
    with pytest.raises(BlockingIOError):
        fcntl.flock(ring._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # would succeed on a shared open file
    os.write(to_child, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert ring.sequence[0] == 2


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"x")
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        Broadcast(tmp_path / "ring").publish([make_key(1)])
        with pytest.raises(TierError, match="damaged"):
            Broadcast(tmp_path / "damaged")
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


def test_closed_rings_stay_readable(tmp_path: Path) -> None:
    ring, other = Broadcast(tmp_path / "ring"), Broadcast(tmp_path / "ring")
    ring.publish([make_key(1)])
    before = len(os.listdir("/dev/fd"))
    ring.close()
    ring.close()
    assert len(os.listdir("/dev/fd")) == before - 1
    other.publish([make_key(2)])
    assert ring.catch_up() == [make_key(1), make_key(2)]


def test_a_deleted_folder_fails_no_publication(tmp_path: Path) -> None:
    ring, other = Broadcast(tmp_path / "ring"), Broadcast(tmp_path / "ring")
    (tmp_path / "ring").unlink()
    ring.publish([make_key(1)])
    assert other.catch_up() == [make_key(1)]


def test_what_is_for_others_is_not_heard_by_who_says_it(tmp_path: Path) -> None:
    ring, other = Broadcast(tmp_path / "ring"), Broadcast(tmp_path / "ring")
    ring.publish_to_others([make_key(1)])
    assert ring.catch_up() == []
    other.publish([make_key(2)])  # between two times that `ring` looks
    ring.publish_to_others([make_key(3), make_key(2)])
    other.publish([make_key(3)])
    assert ring.catch_up() == [make_key(2), make_key(3)]  # as others said them
    assert other.catch_up() == [make_key(n) for n in (1, 2, 3, 2, 3)]
    other.publish([make_key(4)])
    ring.publish_to_others([make_key(5)] * SLOTS)  # what was said before it is gone
    assert ring.catch_up() is None
    assert ring.catch_up() == []
