"""A sound index is never taken for one that was cut off, whatever one transaction stored and dropped."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import lmdb
import pytest
from tests.unit.tiers.disk_folder import Folder, blob, got

from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.length import check, lengthened, missing

NAMES = [blake2b(number.to_bytes(8, "big"), digest_size=16).digest() for number in range(500)]


@pytest.fixture
def env(tmp_path: Path) -> lmdb.Environment:
    """Two tables of 500 entries each."""
    env = lmdb.open(str(tmp_path), map_size=1 << 26, max_dbs=2)
    tables = [env.open_db(name) for name in (b"one", b"two")]
    with env.begin(write=True) as txn:
        for name in NAMES:
            for table in tables:
                txn.put(name, bytes(50), db=table)
    return env


def drop_all(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
    tables = [env.open_db(name, txn=txn) for name in (b"one", b"two")]
    for name in NAMES:
        for table in tables:
            txn.delete(name, db=table)


def test_a_transaction_that_drops_much_leaves_a_file_of_full_length(env: lmdb.Environment) -> None:
    with lengthened(env), env.begin(write=True) as txn:
        drop_all(env, txn)
    assert missing(env) == 0
    check(env)


def test_without_that_the_file_is_too_short(env: lmdb.Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What LMDB does: should it change, `lengthened` can go."""
    with env.begin(write=True) as txn:
        drop_all(env, txn)
    assert missing(env) > 0
    monkeypatch.setattr("mmcache.tiers.disk.length._PATIENCE_SECONDS", 0.0)
    with pytest.raises(lmdb.CorruptedError, match="is cut off"):
        check(env)


def test_a_failed_transaction_stays_a_failure(env: lmdb.Environment) -> None:
    def fail() -> None:
        with lengthened(env), env.begin(write=True) as txn:
            drop_all(env, txn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert missing(env) == 0


def test_a_folder_opens_again_after_much_was_dropped(folder: Folder) -> None:
    tier = folder.open()
    tier.put([blob(1)], [None])
    index = tier._writer._index
    for size in range(10, 110, 10):  # with most, LMDB leaves the file too short

        def store(tables: Tables, value: bytes = bytes(size)) -> None:
            for name in NAMES:
                for table in (tables.meta, tables.places):
                    tables.txn.put(name, value, db=table)

        def drop(tables: Tables) -> None:
            for name in NAMES:
                for table in (tables.meta, tables.places):
                    tables.txn.delete(name, db=table)

        index.update(store)
        index.update(drop)
        assert missing(index._env) == 0
    tier.close()
    assert got(folder.open(), 1) == blob(1).payload
    assert not folder.failures()
