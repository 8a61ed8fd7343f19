"""The disk tier: damage, formats, full and read-only folders, erasure."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.tiers.disk_folder import KB, SMALL, Folder, blob, got, only_segment

from mmcache.model.errors import FormatVersionError, TierError
from mmcache.model.event import Failed, MissReason, RefuseReason
from mmcache.settings import DiskSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier, segments
from mmcache.tiers.disk.index import Index, Tables
from mmcache.tiers.disk.ledger import _USAGE, Usage, usages

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


# the folder under it


def test_a_folder_that_was_deleted_and_made_again_is_followed(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    shutil.rmtree(folder.root)
    assert tier.put([blob(2)], [None]) == [RefuseReason.TIER_DOWN]
    again = folder.open()
    assert again.put([blob(3)], [None]) == [None]
    again.flush()
    assert tier.put([blob(4)], [None]) == [None]
    for at in (tier, again):
        assert [got(at, n) is MissReason.ABSENT for n in (1, 2, 3, 4)] == [True, True, False, False]
    current = (folder.root / "CURRENT").read_text().strip()
    assert (folder.root / current / "data.mdb").read_bytes().find(make_key(4)) > 0  # what any other process reads


def test_segments_that_wait_for_their_sync_do_not_use_up_descriptors(folder: Folder) -> None:
    tier = folder.open(replace(SMALL, limit_bytes=8 << 20, segment_bytes=4 * KB))
    before = len(os.listdir("/dev/fd"))
    assert tier.put([blob(n, 4 * KB) for n in range(200)], [None] * 200) == [None] * 200
    tier.put([blob(200, 4 * KB)], [None])
    assert len(os.listdir("/dev/fd")) - before < 50


def test_no_lock_of_a_reclaimer_outlives_its_transaction(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next process takes it for a writer's, and finds no room."""
    tier, writer = folder.open(), set[int]()
    update = Index.update

    def checked(self: Index, change: Callable[[Tables], object]) -> object:
        done = update(self, change)
        held = [number for number, usage in self.read(usages_of) if usage.sealed and not _free(folder, number)]
        writer.update(held)
        return done

    monkeypatch.setattr(Index, "update", checked)
    for n in range(200):
        assert tier.put([blob(n)], [None]) == [None]
    assert tier.stats().blocks < 200
    assert not writer


def usages_of(tables: Tables) -> list[tuple[int, Usage]]:
    return list(usages(tables))


def _free(folder: Folder, number: int) -> bool:
    fd = segments.locked(folder.root / "segments" / f"{number:016x}.seg")
    if fd is not None:
        os.close(fd)
    return fd is not None


def test_what_a_dead_writer_wrote_is_not_cut_off_under_a_reader(folder: Folder) -> None:
    """Touching a mapped page beyond the end of its file kills the process (SIGBUS)."""
    writer, reader = folder.open(), folder.open()
    writer.put([blob(1), blob(2), blob(3)], [None] * 3)
    found = reader.get([make_key(3)])[0]
    reader.drop([make_key(2), make_key(3)])
    segment = writer._writer._segment
    assert segment is not None
    segment.unlock()  # as if it were dead
    folder.open()
    assert 30 * KB < only_segment(folder).stat().st_size < 32 * KB  # not the unwritten tail either
    assert isinstance(found, Found)
    assert bytes(found.frame.payload) == bytes(blob(3).payload)


def _a_name_that_is_none(tables: Tables) -> None:
    raw = tables.txn.get(make_key(1), db=tables.frames)
    tables.txn.put(make_key(1), raw + b"\xff", db=tables.frames)


def _a_key_that_is_none(tables: Tables) -> None:
    tables.txn.put(b"short", tables.txn.get(make_key(1), db=tables.frames), db=tables.frames)


def _a_place_that_is_none(tables: Tables) -> None:
    tables.txn.put(b"\0short", bytes(52), db=tables.places)
    tables.txn.put(b"\0" * 16, b"short", db=tables.places)


def _a_use_in_the_far_future(tables: Tables) -> None:
    for key, raw in list(tables.txn.cursor(db=tables.segments)):
        usage = Usage(*_USAGE.unpack(raw))
        tables.txn.put(key, _USAGE.pack(*usage._replace(used=0xFFFFFFFF)), db=tables.segments)


@pytest.mark.parametrize(
    "damage", [_a_name_that_is_none, _a_key_that_is_none, _a_place_that_is_none, _a_use_in_the_far_future]
)
def test_a_damaged_entry_stops_no_operation(folder: Folder, damage: Callable[[Tables], None]) -> None:
    tier = folder.open()
    tier.put([blob(n) for n in range(4)], [None] * 4)
    tier.flush()
    tier._writer._index.update(damage)
    tier = folder.open()
    list(tier.scan())
    assert tier.verify().ok is (damage in (_a_name_that_is_none, _a_use_in_the_far_future))
    for n in range(120):  # evicts
        assert tier.put([blob(n)], [None]) == [None]
    tier.put([blob(1)], [None])
    assert tier.erase(lambda held: held.key == make_key(1)).blocks >= 1
    assert got(tier, 1) is MissReason.ABSENT


def test_a_block_of_no_readable_owner_goes_with_any_erasure(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1), blob(2)], [None] * 2)
    tier._writer._index.update(_a_name_that_is_none)
    assert tier.erase(lambda held: False).blocks == 1
    assert [got(tier, n) is MissReason.ABSENT for n in (1, 2)] == [True, False]
