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


def ended(scene: Scene, *names: str) -> None:
    for name in names:
        scene.member(name, ended=True)


def test_hearsay_of_a_replica_does_not_say_whose() -> None:
    scene = outvoted(2)
    ended(scene, "1-0", "2-0")
    for name in ("1-2", "2-2"):
        scene.silence(name, "fail?", "slave")
        scene.dead[id_of(name)] = replace(scene.dead[id_of(name)], primary="?", epoch=0)  # as servers write it
    assert scene.plan(replicas=2).step is None


def test_a_replica_that_one_knows_as_anothers_may_be_ours() -> None:
    """Who heard of it first says so with the newer epoch."""
    scene = outvoted(2)
    ended(scene, "1-0", "2-0", "2-2")
    for name in ("1-2", "2-2"):
        scene.silence(name, "fail?")
    scene.views["0-1", id_of("1-2")] = {"primary": id_of("0-0"), "epoch": 9}
    assert scene.plan(replicas=2).step == Failover("2-1", taken=True)
    scene.remove("2-1", "fail")
    assert scene.plan(replicas=2).step != Failover("1-1", taken=True)


def test_nobody_is_appointed_while_a_majority_may_be_out_of_sight() -> None:
    """It could elect another, now or later; and without it, whom we appoint could serve nothing."""
    scene = Scene(5)
    for name in ("1-0", "2-0", "3-0", "4-0"):
        scene.silence(name, "fail?")
    ended(scene, "1-0")
    assert (scene.plan(5).step, scene.plan(5).reason) == (None, "NoMajority")
    ended(scene, "2-0")
    assert scene.plan(5).step == Failover("1-1", taken=True)


def test_two_replicas_that_do_not_hear_each_other_have_no_choice() -> None:
    """The other one would not hear of it, and could be elected where it is."""
    scene = outvoted(2)
    ended(scene, "1-0", "2-0")
    assert scene.plan(replicas=2).step == Failover("1-1", taken=True)
    for one, other in (("1-1", "1-2"), ("2-2", "2-1")):
        scene.views[one, id_of(other)] = {"flags": frozenset({"fail?"})}
    assert scene.plan(replicas=2).step is None


def deaf(scene: Scene, name: str, seconds: float, silence: float) -> None:
    """It has had no link for so long, and its primary has been silent for a part of that."""
    scene.node(name, unlinked_seconds=seconds, keys=9)
    for other in scene.nodes:
        scene.node(other, unheard_seconds={scene.nodes[name].primary: silence + (other == name) * seconds})


def test_who_has_missed_what_was_dropped_is_no_heir() -> None:
    scene = Scene(replicas=2)
    scene.silence("1-0", "noaddr")
    deaf(scene, "1-1", 60.0, 4.0)
    assert scene.plan(replicas=2).step == Failover("1-2", taken=True)
    scene.remove("1-2", "fail")
    decided = scene.plan(replicas=1)
    assert isinstance(decided.step, Assign)
    assert "lost" in decided.message


def test_a_long_silence_of_a_primary_makes_no_replica_old() -> None:
    scene = Scene()
    scene.silence("1-0", "noaddr")
    deaf(scene, "1-1", 3600.0, 3599.0)
    assert scene.plan().step == Failover("1-1", taken=True)


def test_one_without_blocks_brings_none_back() -> None:
    scene = Scene()
    scene.silence("1-0", "noaddr")
    deaf(scene, "1-1", float("inf"), 4.0)
    scene.node("1-1", keys=0)
    assert scene.plan().step == Failover("1-1", taken=True)


def test_of_two_that_heard_the_same_changes_who_heard_more_takes_over() -> None:
    """The other one has more blocks: what was dropped last is among them."""
    scene = Scene(replicas=2)
    scene.silence("1-0", "noaddr")
    scene.node("1-1", history="h", offset=100, keys=9)
    scene.node("1-2", history="h", offset=101, keys=5)
    assert scene.plan(replicas=2).step == Failover("1-2", taken=True)
    scene.node("1-2", history="of an empty newcomer", keys=0)
    assert scene.plan(replicas=2).step == Failover("1-1", taken=True)
