"""One node of a cluster is gone, frozen, or hands a slot over: its keys are concerned, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from mmcache.lab import servers
from mmcache.lab.servers import Cluster, Node, slot_of
from mmcache.lab.servers.process import until
from mmcache.model.errors import AssetError, TierError
from mmcache.model.event import Event, Failed, MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import ignore
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.watch import LOOK_SECONDS

NAMES = Names("mmcache:")
KEYS = [make_key(n) for n in range(30)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        folder = tmp_path_factory.mktemp("cluster")
        with servers.cluster(folder, 3, 0, "--cluster-require-full-coverage", "no", node_timeout_ms=15_000) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.await_healthy()
    for node in running.primaries:
        node.server.ask("FLUSHALL")
    return running


def open_tier(cluster: Cluster, *, timeout_seconds: float = 30.0, emit: Callable[[Event], None] = ignore) -> ValkeyTier:
    return ValkeyTier.open(
        cluster.url, timeout_seconds=timeout_seconds, rest_seconds=0.1, chunk_bytes=1000, emit=emit, heartbeat=False
    )


def node_of(cluster: Cluster, key: Key) -> Node:
    return cluster.primary_of(slot_of(NAMES.head(key)))


def of_node(cluster: Cluster, node: Node) -> list[Key]:
    return [key for key in KEYS if node_of(cluster, key).name == node.name]


def frames(size: int = 2500) -> list[Frame]:
    return [make_frame(key, bytes([n]) * size) for n, key in enumerate(KEYS)]


@pytest.mark.parametrize("frozen", [True, False])
def test_a_node_that_is_gone_or_frozen_concerns_its_own_keys_only(cluster: Cluster, frozen: bool) -> None:
    events: list[Event] = []
    tier = open_tier(cluster, timeout_seconds=2.5, emit=events.append)
    tier.drop(KEYS)
    assert tier.put(frames(), [None] * len(KEYS)) == [None] * len(KEYS)
    assert all(isinstance(found, Found) for found in tier.get(KEYS))
    gone = node_of(cluster, KEYS[0])
    lost = set(of_node(cluster, gone))
    assert 0 < len(lost) < len(KEYS)
    (cluster.pause if frozen else cluster.kill)(gone)
    try:
        for key, found in zip(KEYS, tier.get(KEYS), strict=True):
            if key in lost:
                assert found in ((MissReason.TIMEOUT, MissReason.TIER_DOWN) if frozen else (MissReason.TIER_DOWN,))
            else:
                assert isinstance(found, Found)
        refusals = dict(zip(KEYS, tier.put(frames(10), [None] * len(KEYS)), strict=True))
        assert {key for key, refused in refusals.items() if refused is not None} == lost
        assert set(refusals.values()) == {None, RefuseReason.TIER_DOWN}
        with pytest.raises(TierError, match=rf"{len(lost)} of {len(KEYS)} keys were not dropped"):
            tier.drop(KEYS)
        others = [key for key in KEYS if key not in lost]
        assert tier.get(others) == [MissReason.ABSENT] * len(others), "those were dropped all the same"
        detail = tier.stats().detail
        assert detail["down"] == 1
        assert detail["lost_writes"] == len(lost)
        with pytest.raises(TierError):
            list(tier.scan())
    finally:
        if frozen:
            cluster.resume(gone)
        else:
            cluster.restart(gone)
        cluster.await_healthy()
    assert until(lambda: tier.put(frames(), [None] * len(KEYS)) == [None] * len(KEYS)), "it heals by itself"
    assert all(isinstance(found, Found) for found in tier.get(KEYS))
    assert any(isinstance(event, Failed) for event in events)
    tier.close()


def test_the_node_of_the_ledger_may_be_gone_for_a_while(cluster: Cluster) -> None:
    """Others' deadlines are translated by what is known of their clocks; a look that fails costs no block."""
    one, two = (
        ValkeyTier.open(cluster.url, machine=b"machine%d" % n, timeout_seconds=10.0, heartbeat=False) for n in (1, 2)
    )
    gone = cluster.primary_of(slot_of(NAMES.clock))
    keys = [key for key in KEYS if node_of(cluster, key).name != gone.name]
    assert one.put([make_frame(key) for key in keys], [1e9] * len(keys)) == [None] * len(keys)
    for tier in (one, two, one, two):
        tier.look()
    cluster.kill(gone)
    try:
        two._watch._looked -= LOOK_SECONDS
        assert all(isinstance(found, Found) for found in two.get(keys))
        assert two.put([make_frame(keys[0])], [1e9]) == [None]
    finally:
        cluster.restart(gone)
        cluster.await_healthy()
        one.close()
        two.close()


def test_while_a_slot_is_handed_over_blocks_are_found_and_none_is_wrong(cluster: Cluster) -> None:
    """Half of a block's keys may be here and half there: what needs them all waits, or is refused; never mixed up."""
    tier = open_tier(cluster, timeout_seconds=3.0)
    key = KEYS[0]
    slot, source = slot_of(NAMES.head(key)), node_of(cluster, key)
    target = next(node for node in cluster.primaries if node.name != source.name)
    (frame,) = (one for one in frames() if one.key == key)
    assert tier.put([frame], [None]) == [None]
    move = cluster.moving(slot, target)
    move.begin()
    assert isinstance(tier.get([key])[0], Found), "all is still at the source"
    pieces = sorted(name for name in move.keys(99) if b":c:" in name)
    assert len(pieces) == 3
    move.move(pieces[1])
    assert isinstance(tier.get([key])[0], Found), "a piece is at the target"
    said = tier.put([make_frame(key, b"newer")], [None])
    assert said in ([RefuseReason.TIER_DOWN], [None])
    move.move(NAMES.head(key))
    assert isinstance(tier.get([key])[0], Found), "the head is at the target"
    with pytest.raises(TierError, match="1 of 1 keys were not dropped"):
        tier.drop([key])
    move.finish()
    assert until(lambda: isinstance(tier.get([key])[0], Found))
    (found,) = tier.get([key])
    assert isinstance(found, Found)
    assert bytes(found.frame.payload) == (b"newer" if said == [None] else bytes(frame.payload))
    assert tier.drop([key]) == 1
    assert tier.put([frame], [None]) == [None]
    assert isinstance(tier.get([key])[0], Found)
    tier.close()
    cluster.move_slots([slot], source)


@pytest.mark.slow
def test_hosts_go_on_while_slots_move_back_and_forth(cluster: Cluster) -> None:
    tiers = [open_tier(cluster, timeout_seconds=20.0) for _ in range(2)]
    slots = sorted({slot_of(NAMES.head(key)) for key in KEYS})
    turn, ended = iter(range(10**6)), threading.Event()
    failures: list[object] = []

    def work(tier: ValkeyTier) -> None:
        while not ended.is_set():
            n = next(turn)
            key = KEYS[n % len(KEYS)]
            refused = tier.put([make_frame(key, b"%d:" % (n % len(KEYS)) + b"%d" % (n % 10) * 2500)], [None])
            failures.extend(one for one in refused if one is not None)
            for place, found in enumerate(tier.get(KEYS)):
                if isinstance(found, Found):
                    payload = bytes(found.frame.payload)
                    if not payload.startswith(b"%d:" % place) or len(set(payload.partition(b":")[2])) != 1:
                        failures.append(payload[:20])
                elif found is not MissReason.ABSENT:
                    failures.append(found)

    workers = [threading.Thread(target=work, args=(tier,)) for tier in tiers]
    for worker in workers:
        worker.start()
    home = {slot: cluster.primary_of(slot) for slot in slots}
    try:
        for slot in slots:
            cluster.move_slots([slot], next(node for node in cluster.primaries if node is not home[slot]))
        for slot in slots:
            cluster.move_slots([slot], home[slot])
    finally:
        ended.set()
        for worker in workers:
            worker.join()
    assert failures == []
    moved = sum(int(tier.stats().detail["moved"]) for tier in tiers)
    assert moved > 0
    for tier in tiers:
        tier.close()
