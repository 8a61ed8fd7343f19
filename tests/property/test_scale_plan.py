"""From any state of a cluster, with anything happening meanwhile, `plan` brings it to where it is wanted.

No step on the way loses a block or takes a shard out of service."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.steering import Steered, grown, scramble

from mmcache.scale.evenly import batch, filled, left_to_move, quotas
from mmcache.scale.observed import SLOTS
from mmcache.scale.plan import plan_deletion
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.testing.cluster_model import ClusterModel
from mmcache.testing.cluster_steps import ClusterSteps

SHARDS = st.integers(3, 6)
COUNTS = st.dictionaries(st.integers(0, 9), st.integers(0, SLOTS // 10), min_size=1)
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["", "", "kill", "want", "hang", "wake", "change", "evict", "part"]),
        st.integers(0, 1000),
        st.sampled_from([None, None, 1, 2, 5, 9]),
    ),
    max_size=25,
)


def steered(seed: int, replicas: int, wanted: int, *, atomic: bool = False) -> Steered:
    draw = random.Random(seed)
    model = ClusterModel(seed, migrates=draw.random() < 0.5, moves=draw.random() < 0.6)
    return Steered(model, ClusterSpec(max_shards=9, replicas=replicas), wanted, atomic)


def befall(steered: Steered, what: str, luck: int) -> None:
    """Something happens that the cluster must survive."""
    nodes = list(steered.model.nodes.values())
    node = nodes[luck % len(nodes)] if nodes else None
    if what == "want":
        steered.wanted = 3 + luck % 4
    elif what == "kill" and node is not None:
        steered.model.kill(node.name)
    elif what == "hang" and node is not None:
        node.hung = True
    elif what == "wake":
        for each in nodes:
            each.hung, each.side = False, 0
    elif what == "part":
        for number, each in enumerate(nodes):
            each.side = luck >> number % 10 & 1
    elif what == "change" and luck % 3 == 0:
        for each in nodes:
            each.current = False
    elif what == "evict" and node is not None:
        node.leaving, node.wait = True, 1 + luck % 5


def ends_well(steered: Steered, happenings: list[tuple[str, int, int | None]]) -> None:
    for what, luck, cut in happenings:
        befall(steered, what, luck)
        steered.turn(cut)
    for node in steered.model.nodes.values():
        node.hung, node.unseen, node.side = False, False, 0
    assert steered.settle().phase is Phase.STEADY
    steered.whole(steered.wanted)


def any_state_comes_to_rest(
    seed: int, replicas: int, wanted: int, was: int, atomic: bool, happenings: list[tuple[str, int, int | None]]
) -> None:
    """Roles, slots, moves cut off, dead ids, half-met and leaving members: all drawn."""
    run = steered(seed, replicas, wanted, atomic=atomic)
    draw = random.Random(seed)
    grown(run.model, was, draw.randrange(3), draw)
    scramble(run.model, draw)
    ends_well(run, happenings)


@given(seed=st.integers(0, 2**32), replicas=st.integers(0, 2), wanted=SHARDS, was=SHARDS, atomic=st.booleans(),
       happenings=HAPPENINGS)  # fmt: skip
@settings(max_examples=9, derandomize=True)
def test_any_state_comes_to_rest(
    seed: int, replicas: int, wanted: int, was: int, atomic: bool, happenings: list[tuple[str, int, int | None]]
) -> None:
    any_state_comes_to_rest(seed, replicas, wanted, was, atomic, happenings)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), replicas=st.integers(0, 2), wanted=SHARDS, was=SHARDS, atomic=st.booleans(),
       happenings=HAPPENINGS)  # fmt: skip
@settings(max_examples=50, derandomize=True)
def test_any_state_comes_to_rest_at_length(
    seed: int, replicas: int, wanted: int, was: int, atomic: bool, happenings: list[tuple[str, int, int | None]]
) -> None:
    any_state_comes_to_rest(seed, replicas, wanted, was, atomic, happenings)


@given(seed=st.integers(0, 2**32), replicas=st.integers(0, 2), wanted=SHARDS, happenings=HAPPENINGS)
@settings(max_examples=8, derandomize=True)
def test_a_creation_that_is_disturbed_comes_to_its_end(
    seed: int, replicas: int, wanted: int, happenings: list[tuple[str, int, int | None]]
) -> None:
    ends_well(steered(seed, replicas, wanted), happenings)


@given(seed=st.integers(0, 2**32), was=SHARDS, cuts=st.lists(st.sampled_from([None, 1]), max_size=10))
@settings(max_examples=20, derandomize=True)
def test_deleting_comes_to_its_end_from_any_state(seed: int, was: int, cuts: list[int | None]) -> None:
    run, draw = steered(seed, 1, 3), random.Random(seed)
    grown(run.model, was, 1, draw)
    scramble(run.model, draw)
    steps = ClusterSteps(run.model)
    for turn in range(60):
        seen = run.model.observed()
        decided = plan_deletion(seen)
        assert decided.phase is Phase.DRAINING
        if decided.step is not None:
            steps.act(decided.step, seen, cuts[turn] if turn < len(cuts) else None)
        run.model.turn()
    assert not run.model.nodes
    assert plan_deletion(run.model.observed()).reason == "Drained"


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("replicas", [0, 1])
def test_a_wish_that_changes_at_each_turn_moves_slots_to_and_fro_and_loses_nothing(replicas: int, atomic: bool) -> None:
    run, draw = steered(3, replicas, 3, atomic=atomic), random.Random(3)
    grown(run.model, 4, replicas, draw)
    held = run.model.reachable_blocks()
    for turn in range(80):
        run.wanted = 3 + 2 * (turn % 2)
        run.turn(draw.choice([None, None, 1, 4]))
    run.wanted = 3
    assert run.settle().phase is Phase.STEADY
    run.whole(3)
    assert run.model.reachable_blocks() == held


@given(counts=COUNTS, takers=st.sets(st.integers(0, 9), min_size=1))
@settings(derandomize=True)
def test_slots_become_even_with_the_fewest_moves(counts: dict[int, int], takers: set[int]) -> None:
    leaving, left, moved = set(counts) - takers, left_to_move(counts, takers), 0
    now = dict(counts)
    while (found := batch(now, takers, leaving, 512)) is not None:
        amount, giver, taker = found
        assert 0 < amount <= 512
        now[giver] -= amount
        now[taker] = now.get(taker, 0) + amount
        moved += amount
    assert moved == left
    final = [now.get(shard, 0) for shard in takers]
    assert max(final) - min(final) <= 1
    assert sum(final) == sum(counts.values()) == sum(quotas(counts, takers).values())
    assert left >= sum(counts.get(shard, 0) for shard in leaving)


@given(counts=COUNTS, amount=st.integers(0, 5000))
@settings(derandomize=True)
def test_what_nobody_has_goes_to_those_who_have_fewest(counts: dict[int, int], amount: int) -> None:
    share = filled(counts, counts.keys(), amount)
    assert sum(share.values()) == amount
    level = max([counts[shard] + share[shard] for shard in share], default=0)
    assert all(counts[shard] + share.get(shard, 0) >= level - 1 for shard in counts)
