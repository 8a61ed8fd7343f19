"""Shrinking while the memory of those that stay runs out: as far as can be, and back where it has to be."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.steering import Steered, grown

from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.testing.cluster_model import ClusterModel
from mmcache.testing.cluster_node import ALL

MEMORY = 64 << 20


def full(shards: int, share: float) -> Steered:
    """A cluster whose nodes are full to this share, a block in every slot."""
    model = ClusterModel(5)
    grown(model, shards, 1, random.Random(5))
    for node in model.nodes.values():
        node.blocks = node.slots
    filled(model, shards, share)
    return Steered(model, ClusterSpec(max_shards=9, replicas=1, memory_bytes=MEMORY), shards, most_slots=512)


def filled(model: ClusterModel, shards: int, share: float) -> None:
    model.block_bytes = int(share * MEMORY * shards / ALL.bit_count())


def test_it_shrinks_as_far_as_the_blocks_fit() -> None:
    run = full(6, 0.5)  # 3.0 memories: four hold 3.4, three 2.55
    run.wanted = 3
    decided = run.settle()
    assert (decided.phase, decided.reason) == (Phase.BLOCKED, "MemoryWouldNotFit")
    assert decided.message.startswith("not fewer than 4 shards")
    run.whole(4)
    run.spec = replace(run.spec, allow_eviction=True)
    assert run.settle().phase is Phase.STEADY
    run.whole(3)


def test_what_no_longer_fits_midway_goes_back() -> None:
    run = full(4, 0.6)
    run.wanted = 3
    for _ in range(50):
        assert run.turn().phase is not Phase.BLOCKED
        if (run.told[-1].left or 4096) < 4096:
            break
    else:
        raise AssertionError("nothing moves")
    filled(run.model, 4, 0.66)  # 2.64 of 3: not to begin with, but it has begun
    assert run.turn().phase is Phase.SCALING_IN
    filled(run.model, 4, 0.8)
    assert run.settle().phase is Phase.BLOCKED
    run.whole(4)
    filled(run.model, 4, 0.66)
    assert run.settle().phase is Phase.BLOCKED
    filled(run.model, 4, 0.5)
    assert run.settle().phase is Phase.STEADY
    run.whole(3)


def test_an_upgrade_without_replicas_waits_for_room() -> None:
    run = full(3, 0.6)
    run.spec = replace(run.spec, replicas=0)
    run.settle()
    for node in run.model.nodes.values():
        node.current = False
    assert run.settle().reason == "UpgradeNeedsRoom"
    run.spec = replace(run.spec, memory_bytes=2 * MEMORY)
    held = run.model.reachable_blocks()
    assert run.settle().phase is Phase.STEADY
    run.whole(3)
    assert run.model.reachable_blocks() == held == ALL
