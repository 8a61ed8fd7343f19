"""How far a scaling is: the whole of it, never backwards, whatever happens on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.scenes import Scene
from tests.steering import Steered, grown
from tests.unit.scale.test_controller import SPEC, START, TURN, World

from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase, Plan, Progress
from mmcache.scale.way import Way, further
from mmcache.testing.cluster_model import ClusterModel


def planned(left: int | None, phase: Phase = Phase.SCALING_OUT) -> Plan:
    return Plan(phase, None, "Any", "any", left=left)


def walked(plans: Sequence[Plan], way: Way | None = None, shards: int = 5) -> list[Progress | None]:
    found: list[Progress | None] = []
    for one in plans:
        way = further(way, one, shards)
        found.append(None if way is None else way.progress)
    return found


def test_it_begins_with_a_scaling_and_ends_when_nothing_is_left_to_do() -> None:
    plans = [planned(0, Phase.STEADY), planned(100), planned(60), planned(0), planned(0, Phase.STEADY)]
    assert walked(plans) == [None, Progress(0, 100), Progress(40, 100), Progress(100, 100), None]


def test_a_repair_on_the_way_belongs_to_it_and_hides_nothing() -> None:
    plans = [planned(100), planned(60), planned(None, Phase.REPAIRING), planned(60, Phase.REPAIRING), planned(50)]
    assert walked(plans)[1:] == [Progress(40, 100)] * 3 + [Progress(50, 100)]


def test_what_goes_back_makes_the_way_longer() -> None:
    assert walked([planned(100), planned(20), planned(50), planned(10)]) == [
        Progress(0, 100), Progress(80, 100), Progress(80, 130), Progress(120, 130),
    ]  # fmt: skip


def test_another_aim_is_another_way() -> None:
    way = further(further(None, planned(100), 5), planned(30), 5)
    assert further(way, planned(80), 6) == Way(6, Progress(0, 80))
    assert further(way, planned(None), 6) is None


def test_who_starts_anew_in_the_middle_counts_what_is_left() -> None:
    assert walked([planned(30), planned(10)]) == [Progress(0, 30), Progress(20, 30)]


@pytest.mark.parametrize("phase", [Phase.CREATING, Phase.REPAIRING, Phase.UPGRADING, Phase.BLOCKED])
def test_what_is_no_scaling_has_no_way(phase: Phase) -> None:
    assert walked([planned(100, phase)]) == [None]


def test_slots_that_nobody_is_heard_to_serve_are_not_counted_as_moving() -> None:
    scene = Scene()
    assert scene.plan(5).left == 7372
    scene.silence("1-0", "fail")
    assert scene.plan(5).left is None


@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 3), (3, 6), (6, 4)])
@pytest.mark.parametrize("atomic", [False, True])
def test_the_whole_way_is_known_from_the_beginning(before: int, after: int, atomic: bool) -> None:
    model = ClusterModel(before)
    steered = Steered(model, ClusterSpec(max_shards=9, replicas=1), after, atomic)
    grown(model, before, 1, random.Random(after))
    steered.settle()
    way: Way | None = None
    told: list[Progress | None] = []
    for one in steered.told:
        way = further(way, one, after)
        told.append(None if way is None else way.progress)
    shown = [one for one in told if one is not None]
    assert len({one.total for one in shown}) == 1
    assert [one.moved for one in shown] == sorted(one.moved for one in shown)
    assert shown[0].moved == 0
    assert shown[0].total - shown[-1].moved <= steered.most_slots  # after the last step it may be steady at once
    assert told[-1] is None


def test_a_controller_tells_it_from_turn_to_turn() -> None:
    world = World()
    lefts = iter([300, 200, None, 100, 0])
    phases = iter([Phase.SCALING_OUT] * 4 + [Phase.STEADY])
    world.next = lambda spec, wanted, seen: planned(next(lefts), next(phases))
    controller = world.controller()
    told = [controller.turn(SPEC, START + TURN * turn).progress for turn in range(1, 6)]
    assert told == [Progress(0, 300), Progress(100, 300), Progress(100, 300), Progress(200, 300), None]
