"""Quotas and classes on disk: to the byte, in every process, across restarts; and what is evicted first."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tiers.disk_folder import KB, SMALL, Folder, blob, got

from mmcache.model.event import Evicted, EvictReason, MissReason, RefuseReason
from mmcache.settings import Tenant
from mmcache.testing.frames import make_key
from mmcache.tiers.disk import DiskTier
from mmcache.tiers.disk.index import Tables
from mmcache.tiers.disk.ledger import Ledger
from mmcache.tiers.disk.record import owner_of

QUOTA = 100 * KB
TENANTS = {"pay": Tenant("critical"), "report": Tenant("batch", quota=QUOTA)}


@pytest.fixture
def tier(folder: Folder) -> DiskTier:
    return with_tenants(folder)


def with_tenants(folder: Folder) -> DiskTier:
    tier = DiskTier(folder.root, SMALL, clock=folder.clock, emit=folder.events.append, tenants=TENANTS)
    folder.opened.append(tier)
    return tier


def held(tier: DiskTier, tenant: str) -> int:
    return tier._writer._index.read(lambda tables: Ledger(tables).held(owner_of(tenant)))


def listed(tier: DiskTier, tenant: str) -> int:
    return sum(block.size for block in tier.scan() if block.tenant == tenant)


def test_a_full_quota_costs_the_tenant_its_own_oldest_block_and_nobody_else_one(folder: Folder, tier: DiskTier) -> None:
    tier.put([blob(100 + n, tenant="pay") for n in range(5)], [None] * 5)
    for n in range(20):
        assert tier.put([blob(n, tenant="report")], [None]) == [None]
        assert held(tier, "report") == listed(tier, "report") <= QUOTA
    kept = [n for n in range(20) if got(tier, n) is not MissReason.ABSENT]
    assert kept == list(range(20 - len(kept), 20))
    assert len(kept) == 9, "10 KiB and a header each"
    assert all(got(tier, 100 + n) is not MissReason.ABSENT for n in range(5))
    gone = [event for event in folder.events if isinstance(event, Evicted)]
    assert {(event.tier, event.reason) for event in gone} == {("disk", EvictReason.QUOTA)}
    assert [event.key for event in gone] == [make_key(n) for n in range(11)]
    assert tier.verify().ok


def test_the_oldest_is_the_one_unused_for_longest(tier: DiskTier) -> None:
    tier.put([blob(n, tenant="report") for n in range(9)], [None] * 9)
    tier.put([blob(50 + n, tenant="pay") for n in range(20)], [None] * 20)  # time passes as the cache fills
    got(tier, 0)
    tier.put([blob(9, tenant="report")], [None])
    assert [n for n in range(10) if got(tier, n) is MissReason.ABSENT] == [1]


def test_a_block_larger_than_the_quota_is_refused_and_evicts_nothing(tier: DiskTier) -> None:
    tier.put([blob(1, tenant="report")], [None])
    assert tier.put([blob(2, 2 * QUOTA // 3 * 2, tenant="report")], [None]) == [RefuseReason.QUOTA]
    assert got(tier, 1) is not MissReason.ABSENT
    assert tier.put([blob(3, 2 * QUOTA // 3 * 2, tenant="pay")], [None]) == [None]


def test_one_put_of_more_than_the_quota_keeps_its_end(tier: DiskTier) -> None:
    tier.put([blob(n, tenant="report") for n in range(30)], [None] * 30)
    assert held(tier, "report") == listed(tier, "report") <= QUOTA
    assert got(tier, 29) is not MissReason.ABSENT


def test_a_replacement_does_not_count_twice(tier: DiskTier) -> None:
    for _ in range(5):
        tier.put([blob(n, tenant="report") for n in range(9)], [None] * 9)
    assert all(got(tier, n) is not MissReason.ABSENT for n in range(9))


def test_drops_erasures_and_expiries_give_the_quota_back(folder: Folder, tier: DiskTier) -> None:
    tier.put([blob(n, tenant="report") for n in range(6)], [None, None, None, None, None, folder.clock.monotonic() + 5])
    tier.drop([make_key(0)])
    tier.erase(lambda block: block.key == make_key(1))
    folder.clock.advance(10)
    assert got(tier, 5) is MissReason.EXPIRED
    tier.flush()
    assert held(tier, "report") == listed(tier, "report")
    assert tier.verify().ok
    tier.erase(lambda block: block.tenant == "report")
    assert held(tier, "report") == 0
    assert folder.holds(owner_of("report")) == []


def test_the_quota_holds_after_a_restart_and_for_a_second_tier(folder: Folder, tier: DiskTier) -> None:
    tier.put([blob(n, tenant="report") for n in range(9)], [None] * 9)
    tier.close()
    one, other = with_tenants(folder), with_tenants(folder)
    for n in range(9, 30):
        (one if n % 2 else other).put([blob(n, tenant="report")], [None])
        assert held(one, "report") == held(other, "report") == listed(one, "report") <= QUOTA
    assert one.verify().ok


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.sampled_from(["pay", "report", "x"]),
                          st.sampled_from(["put", "put", "put", "drop", "get"])), max_size=60))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_what_is_counted_is_what_is_there(calls: list[tuple[int, int, str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        folder = Folder(Path(root) / "cache")
        tier = with_tenants(folder)
        for n, size, tenant, call in calls:
            match call:
                case "put":
                    tier.put([blob(n, size * KB, tenant=tenant)], [None])
                case "drop":
                    tier.drop([make_key(n)])
                case _:
                    got(tier, n)
            assert held(tier, "report") <= QUOTA
        report = tier.verify()
        tier.close()
        assert report.ok, report


def as_before_owners(tier: DiskTier, *, uncounted: bool) -> None:
    """What a process of a version without owners leaves: places without one; `uncounted`: in a folder of its own."""

    def change(tables: Tables) -> None:
        for place, entry in tables.range(tables.places, b"", 10_000):
            tables.txn.put(place, entry[:52], db=tables.places)
        if uncounted:
            for name, _ in tables.range(tables.meta, b"", 10_000):
                if name.startswith((b"own", b"held", b"counted")):
                    tables.txn.delete(name, db=tables.meta)

    tier._writer._index.update(change)


@pytest.mark.parametrize("uncounted", [True, False])
def test_blocks_of_an_older_version_count_too(folder: Folder, uncounted: bool) -> None:
    old = folder.open()
    old.put([blob(n, tenant="report") for n in range(40)], [None] * 40)
    old.put([blob(100 + n, tenant="pay") for n in range(5)], [None] * 5)
    if not uncounted:  # a newer one was here in between
        tier = with_tenants(folder)
        tier.put([blob(n, tenant="report") for n in range(9)], [None] * 9)
    as_before_owners(old, uncounted=uncounted)
    tier = with_tenants(folder)
    for n in range(200, 215):
        assert tier.put([blob(n, tenant="report")], [None]) == [None]
    assert held(tier, "report") == listed(tier, "report") <= QUOTA
    assert listed(tier, "report") > QUOTA - 12 * KB
    assert all(got(tier, 100 + n) is not MissReason.ABSENT for n in range(5))
    assert tier.verify().ok


def test_a_batch_tenant_gives_way_to_a_critical_one_when_space_is_short(folder: Folder) -> None:
    tier = DiskTier(folder.root, SMALL, clock=folder.clock, emit=folder.events.append,
                    tenants={"pay": Tenant("critical"), "report": Tenant("batch")})  # fmt: skip
    folder.opened.append(tier)
    rng = random.Random(3)
    for n in range(40):
        tier.put([blob(n, tenant="pay")], [None])
    for n in range(400):
        tier.put([blob(1000 + n, tenant="report")], [None])
        for _ in range(2):
            got(tier, rng.randrange(40))
    critical = sum(got(tier, n) is not MissReason.ABSENT for n in range(40))
    plain = Folder(folder.root.parent / "plain")
    other = plain.open()
    for n in range(40):
        other.put([blob(n, tenant="pay")], [None])
    for n in range(400):
        other.put([blob(1000 + n, tenant="report")], [None])
        for _ in range(2):
            got(other, rng.randrange(40))
    without = sum(got(other, n) is not MissReason.ABSENT for n in range(40))
    other.close()
    assert critical >= max(30, without)


WRITER = """
import sys
from pathlib import Path
from tests.unit.tiers.disk_folder import SMALL, blob
from tests.unit.tiers.test_disk_tenants import QUOTA, TENANTS, held
from mmcache.tiers.disk import DiskTier
tier = DiskTier(Path(sys.argv[1]), SMALL, tenants=TENANTS)
for n in range(60):
    tier.put([blob(1000 * int(sys.argv[2]) + n, tenant="report")], [None])
    assert held(tier, "report") <= QUOTA
tier.close()
"""


def test_processes_share_one_quota(folder: Folder) -> None:
    root = str(Path(__file__).parents[3])
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, folder.root, str(n)], cwd=root) for n in (1, 2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    tier = with_tenants(folder)
    assert held(tier, "report") == listed(tier, "report") <= QUOTA
    assert tier.verify().ok
