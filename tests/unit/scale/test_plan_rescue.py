"""Slots whose node is absent: nothing is given away that somebody may still serve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.scenes import Scene, id_of

from mmcache.scale.observed import SLOTS, Member
from mmcache.scale.status import Phase
from mmcache.scale.steps import Assign, Failover, Forget, Meet, Replicate


def test_a_primary_that_only_we_cannot_reach_is_waited_for() -> None:
    scene = Scene()
    scene.silence("1-0", ready=True)
    decided = scene.plan()
    assert (decided.step, decided.phase, decided.reason) == (None, Phase.REPAIRING, "PrimaryAbsent")
    assert "reachable" in decided.message


def test_the_cluster_elects_by_itself() -> None:
    scene = Scene()
    scene.silence("1-0", "fail")
    assert (scene.plan().step, scene.plan().reason) == (None, "Electing")


@pytest.mark.parametrize("flags", [("noaddr",), ("fail", "noaddr"), ("fail",)])
def test_a_replica_takes_over_where_no_member_has_the_id_any_more(flags: tuple[str, ...]) -> None:
    scene = Scene()
    scene.anew("1-0", *flags)
    assert scene.plan().step == Failover("1-1", taken=True)


def test_the_replica_that_has_most_takes_over() -> None:
    scene = Scene(replicas=2)
    scene.node("1-1", keys=5, in_sync=False)
    scene.node("1-2", keys=7, in_sync=False)
    scene.remove("1-0", "fail")
    scene.members["1-0"] = Member(1, 0)  # it is being made
    assert scene.plan(replicas=2).step == Failover("1-2", taken=True)


def test_nobody_takes_over_before_the_others_have_noticed() -> None:
    scene = Scene()
    scene.anew("1-0")
    decided = scene.plan()
    assert decided.reason in ("Meeting", "Electing")
    assert not isinstance(decided.step, Failover | Assign)


def test_without_a_majority_doubt_is_enough() -> None:
    scene = Scene()
    scene.anew("1-0", "fail?")
    scene.anew("2-0", "fail?")
    assert scene.plan().step == Failover("1-1", taken=True)


def test_doubt_is_not_enough_where_the_others_can_agree() -> None:
    scene = Scene()
    scene.anew("1-0", "fail?")
    assert not isinstance(scene.plan().step, Failover | Assign)


def test_lost_slots_go_to_the_newcomer_once_it_is_known() -> None:
    scene = Scene(replicas=0)
    scene.anew("1-0", "noaddr")
    lost = scene.dead[id_of("1-0")].slots
    assert scene.plan(replicas=0).step == Meet("1-0", "0-0")
    scene.views.clear()
    decided = scene.plan(replicas=0)
    assert (decided.phase, decided.reason) == (Phase.REPAIRING, "BlocksLost")
    assert decided.step == Assign("1-0", tuple(sorted(lost)))


def test_lost_slots_go_to_none_that_the_others_do_not_reach() -> None:
    scene = Scene(4, replicas=0)
    scene.silence("1-0", "fail", host="")
    step = scene.plan(4, replicas=0).step
    assert isinstance(step, Assign)
    assert step.member == "0-0"
    scene.views["2-0", id_of("0-0")] = {"flags": frozenset({"fail?"})}
    step = scene.plan(4, replicas=0).step
    assert isinstance(step, Assign)
    assert step.member == "2-0"


def test_lost_slots_do_not_wait_for_a_newcomer_that_nobody_reaches() -> None:
    scene = Scene(replicas=0)
    scene.anew("1-0", "noaddr")
    scene.dead["handshake"] = replace(scene.dead[id_of("1-0")], id="handshake", flags=frozenset({"handshake"}))
    scene.views["0-0", "handshake"] = {"slots": frozenset()}
    scene.views["1-0", "handshake"] = scene.views["2-0", "handshake"] = None
    decided = scene.plan(replicas=0)
    assert isinstance(decided.step, Assign)
    assert decided.step.member == "0-0"


def test_lost_slots_go_to_the_others_where_there_is_no_newcomer() -> None:
    scene = Scene(replicas=0)
    scene.silence("1-0", "fail", host="")
    decided = scene.plan(replicas=0)
    assert isinstance(decided.step, Assign)
    assert decided.step.member == "0-0"
    assert len(decided.step.slots) == 2731


def test_a_primary_without_replicas_that_may_come_back_keeps_its_slots() -> None:
    scene = Scene(replicas=0)
    scene.silence("1-0", "fail")
    decided = scene.plan(replicas=0)
    assert (decided.step, decided.reason) == (None, "PrimaryAbsent")
    assert "1-0 is started again" in decided.message


def test_what_is_lost_does_not_wait_for_what_may_come_back() -> None:
    scene = Scene(4, replicas=0)
    scene.silence("2-0")
    scene.anew("1-0", "noaddr")
    scene.views.clear()
    step = scene.plan(4, replicas=0).step
    assert isinstance(step, Assign)
    assert set(step.slots) == scene.dead[id_of("1-0")].slots
    scene.node("1-0", slots=frozenset(step.slots), epoch=9)
    assert "2-0" in scene.plan(4, replicas=0).message


def test_a_slot_whose_owner_may_come_back_stays_open() -> None:
    scene = Scene(replicas=0)
    scene.node("0-0", importing={6000: id_of("1-0")})
    scene.silence("1-0", "fail")
    assert (scene.plan(replicas=0).step, scene.plan(replicas=0).reason) == (None, "PrimaryAbsent")


def test_a_slot_whose_blocks_have_gone_to_one_that_may_come_back_stays_open() -> None:
    scene = Scene(4, replicas=0)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | scene.nodes["3-0"].slots, migrating={6: id_of("3-0")})
    scene.node("3-0", slots=frozenset())
    scene.silence("3-0", "fail")
    for wanted in (4, 3):
        decided = scene.plan(wanted, replicas=0)
        assert (decided.step, decided.reason) == (None, "Settling")
        assert "goes on when 3-0 answers" in decided.message


def test_a_replica_that_we_cannot_reach_may_still_take_over() -> None:
    scene = Scene()
    scene.silence("1-1")
    scene.anew("1-0", "fail")
    scene.views.clear()
    assert (scene.plan().step, scene.plan().reason) == (None, "Electing")


@pytest.mark.parametrize("wanted", [4, 3])
def test_slots_of_which_nobody_has_heard_are_not_given_away_while_one_is_silent(wanted: int) -> None:
    """0-0, 1-0, 2-0 have died for good or do not answer; a newcomer was told of the slots of two of them."""
    scene = Scene(replicas=0)
    scene.add(3, 0)
    unknown = scene.nodes["2-0"].slots
    scene.silence("2-0", "fail", ready=True)
    scene.dead[id_of("2-0")] = replace(scene.dead[id_of("2-0")], slots=frozenset(), epoch=0)
    scene.remove("0-0", "fail")
    scene.remove("1-0", "fail")
    scene.members |= {name: Member(int(name[0]), 0) for name in ("0-0", "1-0")}
    step = scene.plan(wanted, replicas=0).step
    assert isinstance(step, Assign)
    assert not unknown & set(step.slots)
    scene.node("3-0", slots=frozenset(range(SLOTS)) - unknown, epoch=9)
    del scene.dead[id_of("0-0")], scene.dead[id_of("1-0")]
    decided = scene.plan(wanted, replicas=0)
    assert (decided.step, decided.reason, decided.phase) == (None, "PrimaryAbsent", Phase.REPAIRING)
    assert "2-0" in decided.message
    scene.member("2-0", ready=False, current=False)
    assert scene.plan(wanted, replicas=0).step is None
    scene.member("2-0", host="")  # its machine is gone
    step = scene.plan(wanted, replicas=0).step
    assert isinstance(step, Assign)
    assert set(step.slots) == unknown


def test_addresses_that_the_platform_names_otherwise_prove_nothing() -> None:
    scene = Scene(replicas=0)
    scene.silence("1-0", "fail")
    for name, member in list(scene.members.items()):
        seen = scene.seen().nodes.get(name)
        scene.member(name, host=f"node-{member.name}.example")
        for viewer in scene.nodes:
            if seen is not None:
                scene.views[viewer, seen.id] = {"host": member.host}
    assert (scene.plan(replicas=0).step, scene.plan(replicas=0).reason) == (None, "PrimaryAbsent")


def test_the_higher_epoch_is_believed() -> None:
    """An old primary comes back and still thinks that it serves what its replica took over."""
    scene = Scene()
    scene.node("1-1", primary="", slots=scene.nodes["1-0"].slots, epoch=9)
    decided = scene.plan()
    assert (decided.step, decided.reason) == (None, "Converging")
    scene.node("1-0", slots=frozenset())
    assert scene.plan().step == Replicate("1-0", "1-1")


def test_who_serves_what_a_gone_one_is_still_thought_to_serve_gets_a_newer_epoch() -> None:
    scene = Scene(replicas=0)
    scene.anew("1-0", "noaddr")
    scene.views.clear()
    scene.node("1-0", slots=scene.dead[id_of("1-0")].slots, epoch=2)
    decided = scene.plan(replicas=0)
    assert decided.reason == "Affirming"
    assert decided.step == Assign("1-0", tuple(sorted(scene.nodes["1-0"].slots)))


def test_who_was_given_some_of_what_is_lost_before_it_was_cut_off_keeps_it() -> None:
    scene = Scene(replicas=0)
    scene.anew("2-0", "noaddr")
    scene.views.clear()
    some = frozenset(sorted(scene.dead[id_of("2-0")].slots)[:100])
    scene.node("0-0", slots=scene.nodes["0-0"].slots | some)  # its epoch is still lower than the dead one's
    step = scene.plan(replicas=0).step
    assert isinstance(step, Assign)
    assert not some & set(step.slots)


def test_a_primary_that_is_being_stopped_hands_over() -> None:
    scene = Scene()
    scene.member("1-0", leaving=True)
    assert scene.plan().step == Failover("1-1")
    scene.node("1-1", in_sync=False)
    assert scene.plan().step is None


def test_dead_ids_are_forgotten_only_when_nobody_needs_them() -> None:
    scene = Scene()
    scene.anew("1-1", "fail")
    scene.views.clear()
    scene.node("1-1", primary=id_of("1-0"))
    assert scene.plan().step == Forget(id_of("1-1"))
    needs: tuple[dict[str, Any], ...] = ({"flags": frozenset()}, {"slots": frozenset({1}), "epoch": 99})
    for needed in needs:
        scene.dead[id_of("1-1")] = replace(scene.dead[id_of("1-1")], **needed)
        assert not isinstance(scene.plan().step, Forget)


def test_an_id_that_a_silent_member_may_have_is_not_forgotten() -> None:
    scene = Scene()
    scene.silence("1-1", "fail")
    assert (scene.plan().step, scene.plan().reason) == (None, "Starting")


def test_forgetting_never_keeps_from_other_steps() -> None:
    scene = Scene()
    scene.anew("1-1", "fail")
    assert scene.plan().step == Meet("1-1", "0-0")


def test_a_replica_that_hangs_may_have_taken_over_and_has_the_blocks() -> None:
    """One that knows it only from hearsay does not say whom it follows."""
    scene = Scene()
    scene.silence("1-1", "fail")
    scene.anew("1-0", "fail")
    scene.views.clear()
    scene.views["0-0", id_of("1-1")] = {"primary": ""}
    decided = scene.plan()
    assert (decided.step, decided.reason) == (None, "PrimaryAbsent")
    assert "until 1-1 is started again" in decided.message
    scene.member("1-1", host="")  # its machine is gone
    assert isinstance(scene.plan().step, Assign)
