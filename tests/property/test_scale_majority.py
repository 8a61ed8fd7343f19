"""A majority of primaries is lost: what is told meanwhile, that it ends by itself, and that no two serve one slot."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.steering import CALM, Steered, grown

from mmcache.scale.observed import SLOTS
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.scale.steps import Failover
from mmcache.testing.cluster_model import RESTART, TIMEOUT, ClusterModel
from mmcache.testing.cluster_node import ModelNode


def world(seed: int, shards: int, replicas: int, *, proves: bool) -> Steered:
    draw = random.Random(seed)
    steered = Steered(
        ClusterModel(seed, moves=draw.random() < 0.5, proves=proves),
        ClusterSpec(max_shards=9, replicas=replicas),
        shards,
    )
    grown(steered.model, shards, replicas, draw)
    return steered


def primaries(steered: Steered) -> list[ModelNode]:
    return [steered.model.nodes[name] for name in sorted(steered.model.truly())]


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(3, 5), st.integers(1, 2), st.booleans())
def test_a_dead_majority_is_replaced_without_anybody(seed: int, shards: int, replicas: int, proves: bool) -> None:
    steered = world(seed, shards, replicas, proves=proves)
    had = steered.model.reachable_blocks()
    for node in primaries(steered)[: shards // 2 + 1]:
        steered.model.kill(node.name)
    steered.settle()
    steered.whole(shards)
    assert steered.model.reachable_blocks() == had
    assert any(isinstance(one.step, Failover) and one.step.taken for one in steered.told)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(3, 5), st.integers(0, 2), st.booleans())
def test_a_majority_that_hangs_is_waited_for(seed: int, shards: int, replicas: int, proves: bool) -> None:
    """However long it takes: it has its memory, and serves on when it answers."""
    steered = world(seed, shards, replicas, proves=proves)
    had, lost = steered.model.reachable_blocks(), primaries(steered)[: shards // 2 + 1]
    for node in lost:
        node.hung = True
    for _ in range(2 * RESTART):
        steered.turn()
        assert not isinstance(steered.told[-1].step, Failover)
    assert (steered.told[-1].phase, steered.told[-1].reason) == (Phase.REPAIRING, "NoMajority")
    assert f"{len(lost)} of {shards} primaries" in steered.told[-1].message
    for node in lost:
        node.hung = False
    steered.settle()
    steered.whole(shards)
    assert steered.model.reachable_blocks() == had


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans())
def test_a_replica_that_was_elected_out_of_sight_has_no_rival(seed: int, proves: bool) -> None:
    """A primary is dead, and so are all that could say so but one: the others live, and elect, where nobody looks."""
    steered = world(seed, 5, 2, proves=proves)
    first, second, *_ = primaries(steered)
    ours, theirs = [node for node in steered.model.nodes.values() if node.primary == first.id]
    for node in steered.model.nodes.values():
        if node not in (first, second, ours):
            node.side, node.unseen = 1, True
    steered.model.kill(first.name)
    for _ in range(RESTART + 8 * TIMEOUT):
        steered.turn()
        assert not ours.slots
    assert theirs.slots, "nobody was elected: the scene shows nothing"
    for node in steered.model.nodes.values():
        node.side, node.unseen = 0, False
    steered.settle(400 + CALM)
    steered.whole(5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(3, 5), st.integers(1, 2), st.booleans())
def test_what_was_dropped_does_not_come_back(seed: int, shards: int, replicas: int, proves: bool) -> None:
    """Replicas that do not hear of it have more blocks than those that do, and are no heirs all the same."""
    steered, draw = world(seed, shards, replicas, proves=proves), random.Random(seed)
    model = steered.model
    model.turn(4)
    had, first = model.reachable_blocks(), primaries(steered)
    deaf = [node for node in model.nodes.values() if node.primary and draw.random() < 0.5]
    for node in deaf:
        node.deaf = True
    model.turn(12)
    dropped = draw.getrandbits(SLOTS)
    model.drop(dropped)
    lost = draw.sample(first, draw.randrange(1, shards + 1))
    hearing = {node.primary for node in model.nodes.values() if node.primary and not node.deaf}
    kept = [node.slots for node in first if node not in lost or node.id in hearing]
    for node in lost:
        model.kill(node.name)
    for _ in range(40):
        steered.turn()
        assert not model.reachable_blocks() & dropped
    for node in deaf:
        node.deaf = False
    steered.settle()
    steered.whole(shards)
    assert not model.reachable_blocks() & dropped
    for slots in kept:
        assert model.reachable_blocks() & slots == had & slots & ~dropped
