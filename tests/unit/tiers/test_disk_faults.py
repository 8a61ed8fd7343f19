"""The disk tier: damage, formats, full and read-only folders, erasure."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tiers.disk_folder import KB, Folder, blob, got, only_segment

from mmcache.model.errors import FormatVersionError, TierError
from mmcache.model.event import Failed, MissReason, RefuseReason
from mmcache.settings import DiskSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier, segments

# damage


@pytest.mark.parametrize("at", [3, 80, -5], ids=["prelude", "header", "payload"])
def test_a_flipped_byte_is_a_miss_and_an_event(folder: Folder, at: int) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    tier.close()
    path = only_segment(folder)
    raw = bytearray(path.read_bytes())
    raw[at if at >= 0 else 10 * KB] ^= 1
    path.write_bytes(raw)
    tier = folder.open()
    assert [key for key, _ in tier.verify().corrupt] == [make_key(1)]
    assert got(tier, 1) is MissReason.CORRUPT
    assert got(tier, 1) is MissReason.ABSENT
    assert any(isinstance(event, Failed) and event.key == make_key(1) for event in folder.events)
    assert tier.put([blob(1)], [None]) == [None]
    assert got(tier, 1) == bytes(blob(1).payload)


def test_a_cut_off_or_missing_segment_is_a_miss(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1), blob(2)], [None, None])
    tier.close()
    os.truncate(only_segment(folder), 12 * KB)
    tier = folder.open()
    assert got(tier, 2) is MissReason.CORRUPT
    assert got(tier, 1) == bytes(blob(1).payload)
    tier.flush()
    tier._mappings.clear()
    tier._parsed.clear()
    only_segment(folder).unlink()
    assert tier.verify().missing == 1
    assert got(tier, 1) is MissReason.ABSENT


def test_an_index_that_points_to_anothers_frame_serves_nothing(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    raw = tier._index.lookup([make_key(1)])[0]
    tier._index.update(lambda tables: tables.txn.put(make_key(2), raw, db=tables.frames))
    assert not tier.verify().ok
    assert got(tier, 2) is MissReason.CORRUPT
    assert got(tier, 1) == bytes(blob(1).payload)


def test_an_undecodable_entry_means_a_damaged_index(folder: Folder) -> None:
    tier, other = folder.open(), folder.open()
    tier.put([blob(1), blob(2)], [None, None])
    tier._index.update(lambda tables: tables.txn.put(make_key(1), b"short", db=tables.frames))
    assert got(tier, 1) is MissReason.CORRUPT
    assert "set aside" in folder.failures()
    assert got(other, 2) is MissReason.ABSENT
    for at in (tier, other):
        assert at.put([blob(1)], [None]) == [None]
        assert got(at, 1) == bytes(blob(1).payload)
    assert tier.verify().ok
    tier.erase(lambda held: True)
    assert not list(folder.root.glob("*.corrupt-*"))


@pytest.mark.parametrize("damage", ["garbage", "cut", "empty-folder"])
def test_a_damaged_index_is_set_aside(folder: Folder, damage: str) -> None:
    tier = folder.open()
    tier.put([blob(n) for n in range(20)], [None] * 20)
    tier.close()
    data = next(folder.root.glob("index-*/data.mdb"))
    if damage == "garbage":
        data.write_bytes(b"\x5a" * data.stat().st_size)
    elif damage == "cut":
        os.truncate(data, data.stat().st_size - 8192)
    else:
        data.write_bytes(b"")
    tier = folder.open()
    assert got(tier, 1) is MissReason.ABSENT
    if damage != "empty-folder":
        assert "set aside" in folder.failures()
        assert list(folder.root.glob("index-*.corrupt-1"))
    assert tier.put([blob(1)], [None]) == [None]
    assert got(tier, 1) == bytes(blob(1).payload)
    assert tier.verify().ok
    assert len(list((folder.root / "segments").glob("*"))) == 1  # what the lost index knew was reclaimed


def test_a_newer_format_is_refused_and_an_unreadable_one_set_aside(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    tier.close()
    (folder.root / "FORMAT").write_bytes(b"mmcache-disk 2\n")
    with pytest.raises(FormatVersionError, match="upgrade mmcache"):
        folder.open()
    (folder.root / "FORMAT").write_bytes(b"something else")
    tier = folder.open()
    assert got(tier, 1) is MissReason.ABSENT
    assert list(folder.root.glob("segments.old-1/*.seg"))
    assert "set aside" in folder.failures()


# full and read-only


def test_a_full_disk_is_a_refusal(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])

    def full(self: segments.Segment, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments.Segment, "allocate", full)
    results = [tier.put([blob(n)], [None])[0] for n in range(2, 12)]
    assert results[-1] is RefuseReason.DISK_FULL
    assert "No space left" in folder.failures()
    assert got(tier, 1) == bytes(blob(1).payload)
    monkeypatch.undo()
    assert tier.put([blob(50)], [None]) == [None]
    assert tier.verify().ok


def test_free_space_is_left_to_others(folder: Folder) -> None:
    tier = folder.open(DiskSettings(free_space_floor=1 << 60))
    assert tier.put([blob(1)], [None]) == [RefuseReason.DISK_FULL]


def test_a_file_size_limit_is_a_refusal(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * KB, limits[1]))
    try:
        assert tier.put([blob(2, 100 * KB)], [None])[0] is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert got(tier, 1) == bytes(blob(1).payload)
    assert tier.put([blob(3)], [None]) == [None]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """An own small file system."""
    path = tmp_path / "mount"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_small_file_system_runs_full_without_a_signal(mounted: Path) -> None:
    folder = Folder(mounted / "cache")
    tier = folder.open(DiskSettings(limit_bytes=64 << 20, segment_bytes=256 * KB, free_space_floor=0))
    results = [tier.put([blob(n, 50 * KB)], [None])[0] for n in range(300)]
    assert results[0] is None
    assert set(results) <= {None, RefuseReason.DISK_FULL}
    for n, result in enumerate(results):
        held = got(tier, n)
        assert held == bytes(blob(n, 50 * KB).payload) or held is MissReason.ABSENT
        assert result is None or held is MissReason.ABSENT
    last = max(n for n, result in enumerate(results) if result is None)
    assert got(tier, last) == bytes(blob(last, 50 * KB).payload)
    tier.drop([make_key(n) for n in range(300)])
    assert tier.verify().ok
    tier.close()


def test_the_cache_gives_way_where_others_fill_the_file_system(mounted: Path) -> None:
    folder = Folder(mounted / "cache")
    tier = folder.open(DiskSettings(limit_bytes=64 << 20, segment_bytes=128 * KB, free_space_floor=800 * KB))
    for n in range(200):
        assert tier.put([blob(n, 50 * KB)], [None]) == [None]
        space = os.statvfs(mounted)
        index = sum(path.stat().st_blocks * 512 for path in folder.root.glob("index-*/*.mdb"))
        assert space.f_bavail * space.f_frsize + index >= 800 * KB
    assert got(tier, 199) == bytes(blob(199, 50 * KB).payload)
    (mounted / "others").write_bytes(bytes(1000 * KB))
    results = [tier.put([blob(n, 50 * KB)], [None])[0] for n in range(200, 260)]
    assert set(results) <= {None, RefuseReason.DISK_FULL}
    assert tier.verify().ok
    tier.close()


def test_a_read_only_folder_is_served(mounted: Path) -> None:
    folder = Folder(mounted / "cache")
    tier = folder.open()
    tier.put([blob(1)], [None])
    tier.close()
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    tier = folder.open()
    assert "cannot be written" in folder.failures()
    assert got(tier, 1) == bytes(blob(1).payload)
    assert tier.put([blob(2)], [None]) == [RefuseReason.READ_ONLY]
    assert tier.verify().ok
    assert [held.key for held in tier.scan()] == [make_key(1)]
    tier.memo.remember(b"k", b"v")
    assert tier.claims.acquire(make_key(1))
    with pytest.raises(TierError, match="cannot be written"):
        tier.erase(lambda held: True)
    tier.close()
    empty = Folder(mounted / "nothing-here").open()
    assert got(empty, 1) is MissReason.ABSENT
    assert empty.put([blob(2)], [None]) == [RefuseReason.READ_ONLY]
    assert list(empty.scan()) == []
    empty.close()


def test_a_file_in_place_of_the_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TierError, match="not a folder"):
        DiskTier(tmp_path / "file")


# erasing


def test_erased_bytes_keys_and_names_are_in_no_file(folder: Folder) -> None:
    tier, other = folder.open(), folder.open()
    for n in range(40):
        secret = n % 2 == 0
        payload = (b"SECRETBYTES%d" if secret else b"PUBLICBYTES%d") % n * 200
        frame = make_frame(make_key(n), payload, tenant="tenant-to-erase" if secret else "tenant-to-keep")
        (tier if n % 3 else other).put([frame], [None])
    tier.put(
        [make_frame(make_key(2), b"SECRETBYTES-new", tenant="tenant-to-erase")], [None]
    )  # the old one stays behind
    tier.memo.remember(b"memo-of-an-erased-one", make_key(2).digest)
    tier.memo.remember(b"memo-of-an-erased-film", make_key(1).digest + make_key(8).digest + bytes(16))
    tier.memo.remember(b"size" + make_key(6).digest, b"memo-of-an-erased-size")
    tier.drop([make_key(4)])
    tier.flush()
    view = tier.get([make_key(6)])[0]
    assert folder.holds(b"SECRETBYTES")
    assert folder.holds(b"tenant-to-erase")
    report = tier.erase(lambda held: held.tenant == "tenant-to-erase")
    assert report.blocks == 19
    assert report.bytes >= 18 * 2200
    digest = make_key(6).digest
    for trace in (b"SECRETBYTES", b"tenant-to-erase", digest, bytes(make_key(4)), b"memo-of-an-erased"):
        assert folder.holds(trace) == []
    assert isinstance(view, Found)
    assert view.frame.intact()
    for at in (tier, other):
        assert [isinstance(found, Found) for found in at.get([make_key(n) for n in range(40)])] == [False, True] * 20
        assert at.put([blob(100)], [None]) == [None]
        assert at.verify().ok


def test_erasing_nothing_removes_only_what_was_dead(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1), blob(2)], [None, None])
    assert tier.erase(lambda held: False) == (0, 0)
    assert got(tier, 1) == bytes(blob(1).payload)
