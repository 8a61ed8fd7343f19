"""Half of the primaries or more are lost: nobody is elected. What is told, and when we appoint one."""

from __future__ import annotations

from dataclasses import replace

from tests.scenes import Scene, id_of

from mmcache.scale.status import Phase
from mmcache.scale.steps import Assign, Failover


def outvoted(replicas: int = 1) -> Scene:
    """Two of three primaries hang: no majority can agree that they are dead, so all that is said is `fail?`."""
    scene = Scene(replicas=replicas)
    for name in ("1-0", "2-0"):
        scene.silence(name, "fail?")
    return scene


def test_it_says_that_there_is_no_majority_and_what_to_do() -> None:
    decided = outvoted().plan()
    assert (decided.phase, decided.step, decided.reason) == (Phase.REPAIRING, None, "NoMajority")
    assert decided.message.startswith("no majority: 2 of 3 primaries do not answer")
    assert "10923 slots" in decided.message
    assert "Bring 1-0, 2-0 back" in decided.message
    assert "delete it" in decided.message


def test_half_is_no_majority() -> None:
    scene = Scene(4)
    for name in ("1-0", "2-0"):
        scene.silence(name, "fail?")
    assert scene.plan(4).message.startswith("no majority: 2 of 4 primaries")


def test_without_replicas_it_says_so_too() -> None:
    assert outvoted(0).plan(replicas=0).reason == "NoMajority"


def test_one_of_three_is_elected_by_the_others() -> None:
    scene = Scene()
    scene.silence("1-0", "fail")
    assert (scene.plan().step, scene.plan().reason) == (None, "Electing")


def test_who_is_seen_alive_by_others_has_a_vote() -> None:
    scene = outvoted()
    scene.views["0-1", id_of("2-0")] = {"flags": frozenset()}
    assert scene.plan().reason == "Electing"


def test_a_process_of_which_the_end_is_proved_is_replaced() -> None:
    scene = outvoted()
    scene.member("2-0", ended=True)
    assert scene.plan().step == Failover("2-1", taken=True)
    scene.node("2-1", primary="", slots=scene.dead[id_of("2-0")].slots, epoch=9)
    decided = scene.plan()  # two of three are there again, and agree on the last one
    assert (decided.step, decided.reason) == (None, "Electing")


def test_with_a_majority_the_nodes_elect_whatever_is_proved() -> None:
    scene = Scene()
    scene.silence("1-0", "fail", ended=True)
    assert scene.plan().step is None


def test_one_that_is_known_to_have_ended_is_not_said_to_serve() -> None:
    """The others have not noticed yet."""
    scene = Scene()
    scene.silence("1-0", ended=True)
    scene.dead[id_of("1-0")] = replace(scene.dead[id_of("1-0")], flags=frozenset())
    assert (scene.plan().step, scene.plan().reason) == (None, "Electing")
    scene = Scene(replicas=0)
    scene.silence("1-0", ended=True)
    assert "until 1-0 is started again" in scene.plan(replicas=0).message


def test_nobody_takes_over_while_another_replica_may_have_been_elected_out_of_sight() -> None:
    scene = outvoted(2)
    for name in ("1-0", "2-0"):
        scene.member(name, ended=True)
    scene.silence("1-2", "fail?")
    scene.silence("2-2", "fail?")
    decided = scene.plan(replicas=2)
    assert (decided.step, decided.reason) == (None, "NoMajority")
    assert "1-0, 1-2, 2-0, 2-2" in decided.message
    scene.dead[id_of("1-2")] = replace(scene.dead[id_of("1-2")], primary="")  # known by hearsay: whom it follows is not
    scene.member("2-2", ended=True)
    assert scene.plan(replicas=2).step is None
    scene.member("1-2", ended=True)
    assert isinstance(scene.plan(replicas=2).step, Failover)


def test_who_is_known_to_be_gone_is_replaced_without_proof_of_its_end() -> None:
    scene = outvoted()
    scene.member("1-0", host="")  # its machine was deleted
    assert scene.plan().step == Failover("1-1", taken=True)


def test_nothing_is_given_away_of_one_that_may_return() -> None:
    scene = outvoted(0)
    scene.member("2-0", ended=True)
    assert scene.plan(replicas=0).step is None
    scene.member("2-0", host="")
    assert isinstance(scene.plan(replicas=0).step, Assign)
