"""The ring of invalidations: two caches of one process take turns, and no descriptor stays open."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from mmcache.model.key import Key
from mmcache.testing.frames import make_key
from mmcache.tiers.broadcast import Broadcast


def test_two_rings_of_one_process_do_not_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file lock excludes other processes only."""
    one, other = Broadcast(tmp_path / "ring"), Broadcast(tmp_path / "ring")
    append, free = one._append, []

    def watched(keys: Sequence[Key]) -> None:
        free.append(other._writing._lock.acquire(blocking=False))
        append(keys)

    monkeypatch.setattr(one, "_append", watched)
    one.publish([make_key(1)])
    other.publish([make_key(2)])
    assert free == [False]
    assert one.catch_up() == other.catch_up() == [make_key(1), make_key(2)]


def test_a_ring_that_is_let_go_of_closes_its_file(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        Broadcast(tmp_path / "ring")
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before
