"""A cluster that is steered by `plan` while members die, hang, are evicted and lost from sight, and wishes change.

After each step nothing may be lost that was there (`Steered.allowed`); left alone, it comes to rest as it is wanted.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.steering import Steered

from mmcache.scale.observed import SLOTS
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.testing.cluster_model import ClusterModel
from mmcache.testing.cluster_node import ModelNode

NUMBER = st.integers(0, 1000)


class ScaleMachine(RuleBasedStateMachine):
    """Rules are what happens; a turn is what the controller does about it."""

    steered: Steered

    @initialize(seed=st.integers(0, 2**32), replicas=st.integers(0, 2), atomic=st.booleans(), migrates=st.booleans(),
                moves=st.booleans(), proves=st.booleans())  # fmt: skip
    def begin(self, seed: int, replicas: int, atomic: bool, migrates: bool, moves: bool, proves: bool) -> None:
        model = ClusterModel(seed, migrates=migrates, moves=moves, proves=proves)
        self.steered = Steered(model, ClusterSpec(max_shards=9, replicas=replicas), 3, atomic)

    @property
    def nodes(self) -> list[ModelNode]:
        return list(self.steered.model.nodes.values())

    def pick(self, number: int) -> ModelNode:
        return self.nodes[number % len(self.nodes)]

    @rule(cut=st.sampled_from([None, 1, 2, 3, 6, 12]))
    def turn(self, cut: int | None) -> None:
        self.steered.turn(cut)

    @rule(turns=st.integers(2, 12))
    def turns(self, turns: int) -> None:
        for _ in range(turns):
            self.steered.turn()

    @rule(ticks=st.integers(1, 10))
    def nobody_steers(self, ticks: int) -> None:
        self.steered.model.turn(ticks)

    @rule(shards=st.integers(3, 6))
    def want(self, shards: int) -> None:
        self.steered.wanted = shards

    @rule(replicas=st.integers(0, 2))
    def want_replicas(self, replicas: int) -> None:
        self.steered.spec = ClusterSpec(max_shards=9, replicas=replicas)

    @rule()
    def another_version(self) -> None:
        for node in self.nodes:
            node.current = False

    @rule(seed=NUMBER)
    def put(self, seed: int) -> None:
        self.steered.model.put(random.Random(seed).getrandbits(SLOTS))

    @precondition(lambda self: self.nodes)
    @rule(number=NUMBER)
    def hear_no_changes(self, number: int) -> None:
        self.pick(number).deaf = True

    @precondition(lambda self: self.nodes)
    @rule(number=NUMBER)
    def die(self, number: int) -> None:
        self.steered.model.kill(self.pick(number).name)

    @precondition(lambda self: self.nodes)
    @rule(number=NUMBER)
    def hang(self, number: int) -> None:
        self.pick(number).hung = True

    @precondition(lambda self: self.nodes)
    @rule(number=NUMBER)
    def go_out_of_sight(self, number: int) -> None:
        self.pick(number).unseen = True

    @precondition(lambda self: self.nodes)
    @rule(number=NUMBER)
    def be_evicted(self, number: int) -> None:
        node = self.pick(number)
        node.leaving, node.wait = True, 1 + number % 5

    @rule(sides=st.integers(0, 1023))
    def the_network_comes_apart(self, sides: int) -> None:
        for number, node in enumerate(self.nodes):
            node.side = sides >> number % 10 & 1

    @rule()
    def all_come_back(self) -> None:
        for node in self.nodes:
            node.hung, node.unseen, node.deaf, node.side = False, False, False, 0

    def teardown(self) -> None:
        self.all_come_back()
        decided = self.steered.settle()
        assert decided.phase is Phase.STEADY, decided
        self.steered.whole(self.steered.wanted)


def test_whatever_happens_it_comes_to_rest_as_wanted() -> None:
    run_state_machine_as_test(
        ScaleMachine, settings=settings(max_examples=8, stateful_step_count=25, deadline=None, derandomize=True)
    )
