"""The disk tier where others interfere: deleted folders, dead and rival processes, forged index entries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace

import lmdb
import pytest
from tests.unit.tiers.disk_folder import KB, SMALL, Folder, blob, got, only_segment

from mmcache.model.event import MissReason, RefuseReason
from mmcache.testing.frames import make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import segments
from mmcache.tiers.disk.index import Index, Tables
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import _USAGE, Usage, usages


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


def test_who_opens_an_index_that_was_replaced_twice_meanwhile_deletes_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    tier.flush()
    first = tier._layout.current()
    assert first is not None
    shutil.copytree(first, folder.root / "kept")
    tier.erase(lambda held: False)
    tier.erase(lambda held: False)
    last = tier._layout.current()
    assert last not in (None, first)
    (folder.root / "kept").rename(first)  # as one sees it who had opened it before
    with lmdb.open(str(first), max_dbs=6) as env, env.begin(write=True) as txn:
        txn.put(b"moved", b"index-2", db=env.open_db(b"meta", txn))
    answers, current = [first], Layout.current
    monkeypatch.setattr(Layout, "current", lambda self: answers.pop() if answers else current(self))
    tier._writer._index._close()
    assert got(tier, 1) == bytes(blob(1).payload)
    assert (tier._layout.current(), answers) == (last, [])
