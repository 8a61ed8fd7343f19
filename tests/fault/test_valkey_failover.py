"""A cluster with replicas: they may be read, and take over. Nothing older comes back that a token guards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from mmcache.lab import servers
from mmcache.lab.servers import Cluster, slot_of
from mmcache.lab.servers.cluster import SLOTS
from mmcache.lab.servers.process import until
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.key import Key
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.names import Names

pytestmark = pytest.mark.slow
NAMES = Names("mmcache:")
KEYS = [make_key(n) for n in range(20)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with servers.cluster(tmp_path_factory.mktemp("cluster"), 3, 1, node_timeout_ms=4000) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


def open_tier(cluster: Cluster, *, replica_reads: bool = False) -> ValkeyTier:
    return ValkeyTier.open(
        cluster.url, timeout_seconds=5, rest_seconds=0.01, chunk_bytes=1000, lease_seconds=60, heartbeat=False,
        replica_reads=replica_reads,
    )  # fmt: skip


def test_replicas_are_read_where_they_may_be(cluster: Cluster) -> None:
    tier = open_tier(cluster, replica_reads=True)
    frames = [make_frame(key, bytes([n]) * 2500) for n, key in enumerate(KEYS)]
    assert tier.put(frames, [None] * len(KEYS)) == [None] * len(KEYS)
    assert until(lambda: all(isinstance(found, Found) for found in tier.get(KEYS)))
    for frame, found in zip(frames, tier.get(KEYS), strict=True):
        assert isinstance(found, Found)
        assert bytes(found.frame.payload) == frame.payload
    assert tier.drop(KEYS) == len(KEYS)
    assert until(lambda: all(found is MissReason.ABSENT for found in tier.get(KEYS)))
    tier.close()


def test_after_a_failover_blocks_are_there_and_a_leader_that_was_overtaken_stores_nothing(cluster: Cluster) -> None:
    one, two = open_tier(cluster), open_tier(cluster)
    led = KEYS[0]
    stored, overtaken = _neighbours(led, 2)
    assert one.put([make_frame(stored, b"s" * 2500)], [None]) == [None]
    assert one.claims.acquire_all([led, overtaken]) == [True, True]
    two.drop([overtaken])
    gone = cluster.primary_of(slot_of(NAMES.head(led)))
    (replica,) = cluster.replicas_of(gone)
    assert until(lambda: _offset(gone) == _offset(replica))
    cluster.kill(gone)
    cluster.await_healthy()
    assert isinstance(two.get([stored])[0], Found)
    assert not two.claims.acquire(led), "the lease went over to the replica"
    assert one.put([make_frame(led, b"computed")], [None]) == [None]
    assert one.put([make_frame(overtaken, b"late")], [None]) == [RefuseReason.INVALIDATED]
    assert [bytes(f.frame.payload) if isinstance(f, Found) else f for f in two.get([led, overtaken])] == [
        b"computed", MissReason.ABSENT,
    ]  # fmt: skip
    one.close()
    two.close()
    cluster.restart(gone)
    cluster.await_healthy()


def _neighbours(key: Key, count: int) -> list[Key]:
    """Others of the same third of all slots, so of the same node."""
    third = slot_of(NAMES.head(key)) * 3 // SLOTS
    found = (make_key(n) for n in range(1000, 9999))
    return list(islice((one for one in found if slot_of(NAMES.head(one)) * 3 // SLOTS == third), count))


def _offset(node: servers.Node) -> bytes:
    said = dict(line.split(b":", 1) for line in node.server.ask("INFO", "replication").split(b"\r\n") if b":" in line)
    return bytes(said[b"master_repl_offset"])
