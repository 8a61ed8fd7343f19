"""The disk tier: files, deadlines, the limit and eviction, memo, signatures, claims."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.unit.tiers.disk_folder import KB, SMALL, Folder, blob, got

from mmcache.model.event import Evicted, Expired, MissReason, Refused, RefuseReason
from mmcache.settings import DiskSettings
from mmcache.testing.clock import FakeClock
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier, record

# files


def test_modes_keep_others_out_and_home_is_expanded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.root.parent))
    folder.root = Path("~/cache")
    tier = folder.open()
    tier.put([blob(1)], [None])
    tier.claims.acquire(make_key(1))
    root = folder.root.expanduser()
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_payload_is_aligned_read_only_and_not_a_copy(folder: Folder) -> None:
    import numpy as np

    tier = folder.open()
    tier.put([blob(1, 100), blob(2)], [None, None])
    first, again = tier.get([make_key(2), make_key(2)])
    assert isinstance(first, Found)
    assert isinstance(again, Found)
    array = np.frombuffer(first.frame.payload, np.uint8)
    assert array.ctypes.data % 64 == 0
    assert not array.flags.writeable
    assert np.shares_memory(array, np.frombuffer(again.frame.payload, np.uint8))


def test_reopened_it_still_holds_what_was_flushed(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [folder.clock.monotonic() + 9])
    tier.memo.remember(b"m", b"value")
    tier.signatures.note(b"content", b"s" * 16)
    tier.close()
    tier = folder.open()
    assert got(tier, 1) == bytes(blob(1).payload)
    assert tier.memo.recall(b"m") == b"value"
    assert tier.signatures.seen(b"content") == (b"s" * 16,)
    folder.clock.advance(9)
    assert got(tier, 1) is MissReason.EXPIRED
    tier.flush()
    assert [event for event in folder.events if isinstance(event, Expired)] == [Expired(make_key(1), "disk")]
    assert got(tier, 1) is MissReason.ABSENT


def test_after_a_reboot_wall_time_decides(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = folder.open()
    tier.put([blob(1), blob(2)], [folder.clock.monotonic() + 100, folder.clock.monotonic() + 10])
    tier.close()
    monkeypatch.setattr(record, "boot_id", lambda: b"otherone")
    folder.clock = FakeClock(monotonic=5.0, wall=folder.clock.wall() + 50)
    tier = folder.open()
    found = tier.get([make_key(1)])[0]
    assert isinstance(found, Found)
    assert found.deadline == pytest.approx(55.0)
    assert got(tier, 2) is MissReason.EXPIRED


# the limit


def test_the_limit_holds_on_disk_and_the_used_survive(folder: Folder) -> None:
    tier = folder.open()
    view = None
    for n in range(400):
        assert tier.put([blob(n)], [None]) == [None]
        if n == 0:
            view = tier.get([make_key(0)])[0]
        else:
            assert got(tier, 3 if n > 3 else n) == bytes(blob(3 if n > 3 else n).payload)
        disk = sum(path.stat().st_blocks * 512 for path in (folder.root / "segments").glob("*"))
        assert disk <= SMALL.limit_bytes
        assert tier.stats().bytes <= SMALL.limit_bytes
    evicted = [event.key for event in folder.events if isinstance(event, Evicted)]
    assert len(evicted) == len(set(evicted)) > 300
    assert make_key(3) not in evicted  # copied forward again and again
    assert got(tier, 399) == bytes(blob(399).payload)
    assert got(tier, 0) is MissReason.ABSENT
    assert isinstance(view, Found)
    assert bytes(view.frame.payload) == bytes(blob(0).payload)  # its segment was unlinked long ago
    assert tier.verify().ok


def test_costly_blocks_outlive_cheap_ones(folder: Folder) -> None:
    tier = folder.open()
    for n in range(300):
        tier.put([make_frame(make_key(n), b"x" * 10 * KB, cost=100.0 if n < 30 else 0.001)], [None])
    kept = {held.key for held in tier.scan()}
    assert {make_key(n) for n in range(30)} <= kept


def test_an_order_given_from_outside_decides(folder: Folder) -> None:
    calls = []

    def smallest_last(blocks: object) -> list[object]:
        ordered = sorted(blocks, key=lambda held: held.size)  # type: ignore[call-overload]
        calls.append(len(ordered))
        return [held.key for held in ordered]

    tier = DiskTier(folder.root, SMALL, policy_order=smallest_last)  # type: ignore[arg-type]
    folder.opened.append(tier)
    for n in range(200):
        tier.put([blob(n)], [None])
    assert calls
    assert tier.verify().ok


def test_dead_bytes_go_first(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(n) for n in range(90)], [None] * 90)
    tier.drop([make_key(n) for n in range(40)])
    before = len([event for event in folder.events if isinstance(event, Evicted)])
    tier.put([blob(n) for n in range(100, 125)], [None] * 25)
    assert len([event for event in folder.events if isinstance(event, Evicted)]) == before
    assert all(got(tier, n) == bytes(blob(n).payload) for n in range(50, 90))


def test_larger_than_the_limit_is_refused_and_larger_than_a_segment_is_not(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    assert tier.put([blob(2, 1 << 20), blob(3, 500 * KB)], [None, None]) == [RefuseReason.TOO_LARGE, None]
    assert got(tier, 3) == bytes(blob(3, 500 * KB).payload)
    assert got(tier, 1) == bytes(blob(1).payload)
    assert Refused(make_key(2), "disk", RefuseReason.TOO_LARGE) in folder.events


def test_the_map_grows_while_others_read(folder: Folder) -> None:
    tier = folder.open()
    for first in range(0, 3000, 100):
        frames = [make_frame(make_key(n), b"%d" % n) for n in range(first, first + 100)]
        assert tier.put(frames, [None] * 100) == [None] * 100
        assert got(tier, first) == b"%d" % first
    assert int(tier.stats().detail["index_map_bytes"]) > SMALL.index_map_bytes
    assert tier.verify().ok


def test_more_segments_than_may_be_mapped(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.tiers.disk.tier._MAPPED", 8)
    monkeypatch.setattr("mmcache.tiers.disk.tier._PARSED", 16)
    tier = folder.open(DiskSettings(limit_bytes=4 << 20, segment_bytes=64 * KB, free_space_floor=0))
    tier.put([blob(n) for n in range(150)], [None] * 150)
    views = tier.get([make_key(n) for n in range(150)])
    assert tier.stats().detail["mapped_segments"] <= 8  # type: ignore[operator]
    assert [bytes(found.frame.payload) for found in views if isinstance(found, Found)] == [
        bytes(blob(n).payload) for n in range(150)
    ]


def test_two_tiers_of_one_process_share_the_folder(folder: Folder) -> None:
    one, other = folder.open(), folder.open()
    one.put([blob(1)], [None])
    assert got(other, 1) == bytes(blob(1).payload)
    other.drop([make_key(1)])
    assert got(one, 1) is MissReason.ABSENT
    one.close()
    assert other.put([blob(2)], [None]) == [None]
    assert got(other, 2) == bytes(blob(2).payload)


# memo


def test_memo_forgets_what_is_too_long_and_stays_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.tiers.disk.tier.MEMO_ENTRIES", 500)
    tier = folder.open()
    tier.memo.remember(b"", b"v")
    tier.memo.remember(b"k" * 600, b"v")
    tier.memo.remember(b"k", b"v" * 5000)
    assert [tier.memo.recall(key) for key in (b"", b"k" * 600, b"k")] == [None] * 3
    for n in range(3000):
        tier.memo.remember(make_key(n * 7919).digest, b"%d" % n)
    tier.flush()
    kept = [tier.memo.recall(make_key(n * 7919).digest) for n in range(3000)]
    assert all(value in (None, b"%d" % n) for n, value in enumerate(kept))
    assert 0 < sum(value is not None for value in kept) <= 500


def test_signatures_keep_the_last_sixteen(folder: Folder) -> None:
    tier = folder.open()
    for n in range(20):
        tier.signatures.note(b"content", bytes([n]) * 16)
        tier.signatures.note(b"content", bytes([n]) * 16)
    assert tier.signatures.seen(b"content") == tuple(bytes([n]) * 16 for n in range(4, 20))
    assert tier.signatures.seen(b"other") == ()


def test_a_claim_has_one_holder(folder: Folder) -> None:
    one, other = folder.open(), folder.open()
    assert one.claims.acquire(make_key(1))
    assert not one.claims.acquire(make_key(1))
    assert not other.claims.acquire(make_key(1))
    assert other.claims.acquire(make_key(2))
    one.claims.release(make_key(1))
    one.claims.release(make_key(1))
    assert other.claims.acquire(make_key(1))
