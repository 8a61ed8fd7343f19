"""Space is taken for real, also where the platform has no call for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmcache import Cache
from mmcache.tiers.reserve import reserve

SIZE = (1 << 20) + 4096


@pytest.fixture(params=["call", "zeros"], autouse=True)
def _platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zeros":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)


def test_the_file_has_its_space_and_keeps_what_it_held(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"held")
    with path.open("r+b") as file:
        reserve(file.fileno(), SIZE)
        reserve(file.fileno(), 10)
    assert path.read_bytes() == b"held".ljust(SIZE, b"\0")
    assert path.stat().st_blocks * 512 >= SIZE


def test_a_cache_folder_works(tmp_path: Path) -> None:
    with Cache(tmp_path / "c") as cache:
        key = cache.key("four", modality="text", signature="a")
        cache.put(key, 4)
    with Cache(tmp_path / "c") as cache:
        assert cache.get(key) == 4
