"""Members and their roles, moves that were cut off, and upgrades."""

from __future__ import annotations

import pytest
from tests.scenes import MEMORY, Scene, id_of

from mmcache.scale.observed import Member
from mmcache.scale.status import Phase, Progress
from mmcache.scale.steps import Failover, MoveSlots, Replace, Replicate, Settle, StartShard, StopShard
from mmcache.scale.telling import conditions


def swapped(scene: Scene, shard: int) -> None:
    """The replica of a shard has become its primary."""
    slots = scene.nodes[f"{shard}-0"].slots
    scene.node(f"{shard}-0", primary=id_of(f"{shard}-1"), slots=frozenset(), epoch=0)
    scene.node(f"{shard}-1", primary="", slots=slots, epoch=9)


def test_any_place_may_be_the_primary() -> None:
    scene = Scene()
    swapped(scene, 1)
    assert scene.plan().phase is Phase.STEADY


def test_the_one_with_slots_stays_primary() -> None:
    scene = Scene()
    swapped(scene, 1)
    scene.node("1-0", primary="")
    assert scene.plan().step == Replicate("1-0", "1-1")


def test_two_with_slots_are_joined() -> None:
    scene = Scene()
    few = frozenset(sorted(scene.nodes["1-0"].slots)[:10])
    scene.node("1-0", slots=scene.nodes["1-0"].slots - few)
    scene.node("1-1", primary="", slots=few, epoch=9)
    assert scene.plan().step == MoveSlots(tuple(sorted(few)), "1-1", "1-0")


def test_a_replica_of_another_shard_comes_back_to_its_own() -> None:
    scene = Scene()
    scene.node("1-1", primary=id_of("2-0"))
    assert scene.plan().step == Replicate("1-1", "1-0")


def test_a_shard_of_replicas_of_others_starts_anew() -> None:
    scene = Scene(4)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | scene.nodes["3-0"].slots)
    for place in range(2):
        scene.node(f"3-{place}", primary=id_of("0-0"), slots=frozenset())
    assert scene.plan(4).step == Replace("3-0")
    scene.silence("3-0")
    assert scene.plan(4).step is None
    assert scene.plan(3).step == StopShard(3)


def test_a_replica_of_a_gone_primary_without_slots_takes_over() -> None:
    scene = Scene()
    for place in range(2):
        scene.add(3, place)
    scene.node("3-1", primary=id_of("3-0"))
    scene.remove("3-0", "fail")
    scene.members["3-0"] = Member(3, 0)
    assert scene.plan(4).step == Failover("3-1", taken=True)


def test_more_replicas_are_started_and_fewer_stopped() -> None:
    assert Scene().plan(replicas=2).step == StartShard(0, 3)
    assert Scene(replicas=2).plan(replicas=1).step == StopShard(0, 1 + 1)
    assert Scene(replicas=2).plan(replicas=0).step == StopShard(0, 1)


def test_a_primary_hands_over_before_its_place_goes() -> None:
    scene = Scene()
    swapped(scene, 0)
    assert scene.plan(replicas=0).step == Failover("0-0")
    scene.node("0-0", in_sync=False)
    assert scene.plan(replicas=0).step is None


def test_a_primary_that_serves_nothing_goes_without_handing_over() -> None:
    scene = Scene()
    for place in range(3):
        scene.add(3, place)
    for place in range(2):
        scene.node(f"3-{place}", primary=id_of("3-2"))
    assert scene.plan(4).step == StopShard(3, 2)
    scene.member("3-2", leaving=True)
    assert (scene.plan(4).step, scene.plan(4).reason) == (None, "Stopping")
    scene.remove("3-2", "fail")
    assert scene.plan(4).step == Failover("3-0", taken=True)


def test_a_member_that_is_missing_does_not_cost_the_primary_beyond_it() -> None:
    scene = Scene(replicas=2)
    scene.node("0-2", primary="", slots=scene.nodes["0-0"].slots, epoch=9)
    scene.node("0-1", primary=id_of("0-2"))
    scene.remove("0-0", "fail")
    assert scene.plan(replicas=1).step == StartShard(0, 3)


def test_a_replica_for_which_there_is_no_machine_keeps_nobody_waiting() -> None:
    scene = Scene()
    scene.remove("1-1", "fail")
    scene.members["1-1"] = Member(1, 1)
    assert scene.plan(4).step == StartShard(3, 2)
    scene.dead.clear()
    decided = scene.plan()
    assert (decided.phase, decided.step, decided.reason) == (Phase.REPAIRING, None, "WaitingForMember")


def test_a_replica_beside_its_primary_is_told_and_left() -> None:
    scene = Scene()
    scene.member("1-1", machine="m0")
    decided = scene.plan()
    assert (decided.phase, decided.step, decided.reason) == (Phase.STEADY, None, "ReplicaBesidePrimary")
    assert "1-1" in decided.message
    degraded = next(one for one in conditions(scene.seen(), decided, None, None) if one.type == "Degraded")
    assert (degraded.status, degraded.reason) == (True, "ReplicaBesidePrimary")
    for name in scene.members:
        scene.member(name, machine="m0")
    assert scene.plan().reason == "Steady"


SLOT = 100


@pytest.mark.parametrize(
    ("importing", "migrating", "wanted", "step"),
    [
        (True, True, 4, Settle((SLOT,), "0-0", "3-0")),
        (True, False, 4, Settle((SLOT,), "0-0", "3-0")),
        (False, True, 4, Settle((SLOT,), "0-0", "3-0")),
        (True, True, 3, Settle((SLOT,), "3-0", "0-0")),
        (True, False, 3, Settle((SLOT,), "3-0", "0-0")),
    ],
)
def test_a_move_that_was_cut_off_goes_on_or_back(importing: bool, migrating: bool, wanted: int, step: Settle) -> None:
    scene = Scene(4)
    scene.node("3-0", importing={SLOT: id_of("0-0")} if importing else {})
    scene.node("0-0", migrating={SLOT: id_of("3-0")} if migrating else {})
    assert scene.plan(wanted).step == step


def test_a_move_of_which_the_target_has_it_already_is_ended() -> None:
    scene = Scene()
    scene.node("1-0", migrating={SLOT: id_of("0-0")})  # 0-0 serves it
    assert scene.plan().step == Settle((SLOT,), "1-0", "0-0")


def test_a_move_to_one_that_is_gone_goes_back() -> None:
    scene = Scene()
    scene.node("0-0", migrating={SLOT: "f" * 40})
    assert scene.plan().step == Settle((SLOT,), None, "0-0")


def test_a_move_from_one_that_is_gone_keeps_what_has_come() -> None:
    scene = Scene(replicas=0)
    scene.node("0-0", importing={6000: id_of("1-0")})
    scene.anew("1-0", "noaddr")
    scene.views.clear()
    assert scene.plan(replicas=0).step == Settle((6000,), None, "0-0")


def test_the_source_that_took_over_goes_on_with_the_move() -> None:
    scene = Scene()
    scene.node("2-0", importing={SLOT: id_of("0-0")})
    swapped(scene, 0)
    assert scene.plan().step == Settle((SLOT,), "0-1", "2-0")


def test_a_migration_of_the_servers_own_is_waited_for() -> None:
    scene = Scene(4)
    scene.node("3-0", moving=True)
    decided = scene.plan(3)
    assert (decided.step, decided.reason, decided.phase) == (None, "Moving", Phase.SCALING_IN)


def test_replicas_are_upgraded_first_then_one_takes_over() -> None:
    scene = Scene(replicas=2)
    for name in scene.members:
        scene.member(name, current=False)
    assert scene.plan(replicas=2).step == Replace("0-1")
    scene.member("0-1", current=True)
    scene.node("0-1", in_sync=False)
    assert scene.plan(replicas=2).step is None
    scene.node("0-1", in_sync=True)
    assert scene.plan(replicas=2).step == Replace("0-2")
    scene.member("0-2", current=True)
    decided = scene.plan(replicas=2)
    assert (decided.phase, decided.step) == (Phase.UPGRADING, Failover("0-1"))
    swapped(scene, 0)
    scene.node("0-2", primary=id_of("0-1"))
    assert scene.plan(replicas=2).step == Replace("0-0")


def test_nothing_is_upgraded_while_another_shard_lacks_a_member() -> None:
    scene = Scene()
    scene.member("0-1", current=False)
    scene.remove("2-1", "fail")
    scene.members["2-1"] = Member(2, 1)
    decided = scene.plan()
    assert (decided.phase, decided.reason) == (Phase.UPGRADING, "Forgetting")
    scene.dead.clear()
    assert (scene.plan().step, scene.plan().reason) == (None, "Degraded")
    assert "2-1, which has no address yet (is there a machine for it?)" in scene.plan().message


def test_a_member_that_cannot_come_up_with_the_old_version_is_replaced() -> None:
    scene = Scene()
    scene.silence("2-1", "fail", current=False)
    assert scene.plan().step == Replace("2-1")
    scene.member("2-1", ready=True)
    assert scene.plan().step is None


def test_without_replicas_slots_go_away_before_an_upgrade() -> None:
    scene = Scene(replicas=0)
    for name in scene.members:
        scene.member(name, current=False)
        scene.node(name, used_bytes=MEMORY // 3)
    decided = scene.plan(replicas=0)
    assert isinstance(decided.step, MoveSlots)
    assert (decided.phase, decided.step.source) == (Phase.UPGRADING, "0-0")
    assert decided.progress == Progress(0, 5461)
    first = scene.nodes["0-0"].slots & frozenset(range(1000))
    scene.node("0-0", slots=scene.nodes["0-0"].slots - first)
    scene.node("1-0", slots=scene.nodes["1-0"].slots | first)
    assert scene.plan(replicas=0).progress == Progress(1000, 5461)
    for name in ("1-0", "2-0"):
        half = {slot for slot in scene.nodes["0-0"].slots if slot % 2 == (name == "1-0")}
        scene.node(name, slots=scene.nodes[name].slots | half)
    scene.node("0-0", slots=frozenset(), used_bytes=0)
    assert scene.plan(replicas=0).step == Replace("0-0")
    scene.member("0-0", current=True)
    step = scene.plan(replicas=0).step
    assert isinstance(step, MoveSlots)
    assert step.target == "0-0"


def test_without_replicas_and_room_an_upgrade_is_refused() -> None:
    scene = Scene(replicas=0)
    for name in scene.members:
        scene.member(name, current=False)
        scene.node(name, used_bytes=int(MEMORY * 0.8))
    decided = scene.plan(replicas=0)
    assert (decided.phase, decided.step, decided.reason) == (Phase.BLOCKED, None, "UpgradeNeedsRoom")
    assert isinstance(scene.plan(replicas=0, allow_eviction=True).step, MoveSlots)
