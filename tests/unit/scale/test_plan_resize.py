"""From nothing to a cluster, to more shards and to fewer: the order of the steps, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenes import MEMORY, Scene, id_of

from mmcache.scale.observed import SLOTS, Member, Observed
from mmcache.scale.plan import plan, plan_deletion
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.scale.steps import Assign, Forget, Meet, MoveSlots, Replicate, StartShard, StopShard


def test_all_shards_of_a_new_cluster_start_without_waiting() -> None:
    members: list[Member] = []
    for shard in range(3):
        decided = plan(ClusterSpec(), 3, Observed(tuple(members)))
        assert (decided.phase, decided.step) == (Phase.CREATING, StartShard(shard, 2))
        members += [Member(shard, 0), Member(shard, 1)]
    decided = plan(ClusterSpec(), 3, Observed(tuple(members)))
    assert (decided.phase, decided.step, decided.reason) == (Phase.CREATING, None, "Starting")


def test_what_cannot_be_seen_is_left_alone() -> None:
    members = (Member(0, 0, "10.0.0.0", 6379, ready=True), Member(1, 0, "10.0.1.0", 6379, current=False))
    decided = plan(ClusterSpec(max_shards=5), 5, Observed(members))
    assert (decided.phase, decided.step, decided.reason) == (Phase.UNKNOWN, None, "Unreachable")


def test_a_new_cluster_meets_replicates_and_gets_its_slots() -> None:
    scene = Scene(slots=False)
    for name in list(scene.nodes):
        scene.node(name, primary="", cluster_ok=False)
        scene.strange(name)
    assert scene.plan().step == Meet("0-1", "0-0")
    scene.views.clear()
    assert scene.plan().step == Replicate("0-1", "0-0")
    for shard in range(3):
        scene.node(f"{shard}-1", primary=id_of(f"{shard}-0"))
    got = []
    for shard in range(3):
        step = scene.plan().step
        assert isinstance(step, Assign)
        assert step.member == f"{shard}-0"
        scene.node(step.member, slots=frozenset(step.slots), epoch=shard + 1)
        got += [*step.slots]
    assert sorted(got) == list(range(SLOTS))
    assert scene.plan().reason == "Converging"
    for name in scene.nodes:
        scene.node(name, cluster_ok=True)
    assert (scene.plan().phase, scene.plan().step) == (Phase.STEADY, None)


def test_no_slots_are_given_while_a_member_that_may_serve_cannot_be_seen() -> None:
    scene = Scene(slots=False)
    scene.silence("2-1")
    scene.dead.clear()
    decided = scene.plan()
    assert (decided.step, decided.reason) == (None, "Starting")
    assert "2-1" in decided.message
    scene.member("2-1", host="")  # it has no address: it cannot serve
    assert isinstance(scene.plan().step, Assign)


def test_a_handshake_under_way_is_waited_for() -> None:
    scene = Scene(replicas=0, slots=False)
    scene.strange("2-0")
    line = scene._line(scene.members["0-0"], scene.nodes["0-0"])
    scene.dead["handshake"] = replace(line, id="handshake", flags=frozenset({"handshake"}))
    for name in scene.nodes:
        scene.views[name, "handshake"] = {} if name == "2-0" else None
    decided = scene.plan(replicas=0)
    assert (decided.step, decided.reason) == (None, "Meeting")


def test_growing_goes_one_shard_at_a_time() -> None:
    scene = Scene()
    decided = scene.plan(5)
    assert (decided.phase, decided.step) == (Phase.SCALING_OUT, StartShard(3, 2))
    assert (decided.progress, decided.left) == (None, 7372)
    for place in range(2):
        scene.add(3, place, ready=False)
    assert scene.plan(5).step == Replicate("3-1", "3-0")
    scene.node("3-1", primary=id_of("3-0"), in_sync=False)
    scene.member("3-0", ready=True)
    scene.member("3-1", ready=True)
    assert (scene.plan(5).step, scene.plan(5).reason) == (None, "Synchronizing")
    scene.node("3-1", in_sync=True)
    step = scene.plan(5).step
    assert isinstance(step, MoveSlots)
    assert (step.source, step.target, len(step.slots)) == ("2-0", "3-0", 512)


def test_large_slots_go_in_smaller_batches() -> None:
    scene = Scene(4)
    for shard, size in enumerate((8 << 30, 1 << 30, 8 << 30, 1 << 30)):
        scene.node(f"{shard}-0", used_bytes=size, max_bytes=64 << 30)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | scene.nodes["3-0"].slots)
    scene.node("3-0", slots=frozenset())
    step = scene.plan(4).step
    assert isinstance(step, MoveSlots)
    assert (step.source, len(step.slots)) == ("0-0", 256)


def test_shrinking_empties_the_highest_shard_then_stops_it() -> None:
    scene = Scene(5)
    decided = scene.plan()
    assert isinstance(decided.step, MoveSlots)
    assert (decided.phase, decided.step.source, decided.step.target) == (Phase.SCALING_IN, "4-0", "0-0")
    for shard in range(3):
        taken = [slot for slot in scene.nodes["4-0"].slots if slot % 3 == shard]
        scene.node(f"{shard}-0", slots=scene.nodes[f"{shard}-0"].slots | set(taken))
    scene.node("4-0", slots=frozenset())
    decided = scene.plan()
    assert (decided.phase, decided.step, decided.left) == (Phase.SCALING_IN, StopShard(4), 3277)
    for place in range(2):
        scene.member(f"4-{place}", leaving=True)
    assert (scene.plan().step, scene.plan().reason) == (None, "Stopping")
    for place in range(2):
        scene.remove(f"4-{place}", "fail")
    step = scene.plan().step
    assert isinstance(step, MoveSlots)
    assert step.source == "3-0"


def test_a_shard_that_is_wanted_again_is_filled_again() -> None:
    scene = Scene(4)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | set(sorted(scene.nodes["3-0"].slots)[:2000]))
    scene.node("3-0", slots=frozenset(sorted(scene.nodes["3-0"].slots)[2000:]))
    step = scene.plan(4).step
    assert isinstance(step, MoveSlots)
    assert (step.source, step.target) == ("0-0", "3-0")
    step = scene.plan(3).step
    assert isinstance(step, MoveSlots)
    assert step.source == "3-0"


def used(scene: Scene, share: float) -> None:
    for name, node in scene.nodes.items():
        if node.slots:
            scene.node(name, used_bytes=int(share * MEMORY))


def test_a_shard_stays_where_its_blocks_would_not_fit_elsewhere() -> None:
    scene = Scene(4)
    used(scene, 0.7)  # 2.8 of 3, and 85 % are 2.55
    decided = scene.plan(3)
    assert (decided.phase, decided.step, decided.reason) == (Phase.BLOCKED, None, "MemoryWouldNotFit")
    assert "280 MiB" in decided.message
    assert "85%" in decided.message
    assert isinstance(scene.plan(3, allow_eviction=True).step, MoveSlots)
    used(scene, 0.6)
    assert isinstance(scene.plan(3).step, MoveSlots)


def test_as_many_shards_go_as_can() -> None:
    scene = Scene(6)
    used(scene, 0.6)  # 3.6: five hold 4.25, four only 3.4
    step = scene.plan(3).step
    assert isinstance(step, MoveSlots)
    assert step.source == "5-0"
    scene = Scene(5)
    used(scene, 0.6)  # 3.0
    decided = scene.plan(3)
    assert isinstance(decided.step, MoveSlots)
    scene = Scene(4)
    used(scene, 0.75)
    decided = scene.plan(3)
    assert decided.reason == "MemoryWouldNotFit"
    assert decided.message.startswith("not fewer than 4 shards: 3 would have to hold 300 MiB")


def test_what_has_begun_goes_on_until_it_cannot_and_then_turns_back() -> None:
    scene = Scene(4)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | set(sorted(scene.nodes["3-0"].slots)[:500]))
    scene.node("3-0", slots=frozenset(sorted(scene.nodes["3-0"].slots)[500:]))
    used(scene, 0.68)  # 2.72 of 3: too much to begin
    step = scene.plan(3).step
    assert isinstance(step, MoveSlots)
    assert step.source == "3-0"
    used(scene, 0.75)
    step = scene.plan(3).step
    assert isinstance(step, MoveSlots)
    assert (step.source, step.target) == ("0-0", "3-0")


def test_one_node_that_would_overflow_is_enough_to_refuse() -> None:
    scene = Scene(4)
    used(scene, 0.5)
    scene.node("1-0", used_bytes=int(0.9 * MEMORY))
    assert "shard 1" in scene.plan(3).message


@pytest.mark.parametrize("wanted", [0, 2, 501])
def test_so_many_shards_are_no_cluster(wanted: int) -> None:
    decided = Scene(4).plan(wanted)
    assert (decided.phase, decided.step) == (Phase.BLOCKED, None)
    assert "minShards" in decided.message
    assert plan(ClusterSpec(), wanted, Observed()).step is None


def test_another_cluster_is_not_merged() -> None:
    scene = Scene()
    scene.add(3, 0)
    scene.node("3-0", slots=frozenset(range(100)), epoch=99)
    scene.strange("3-0")
    decided = scene.plan(4)
    assert (decided.phase, decided.step, decided.reason) == (Phase.BLOCKED, None, "ForeignCluster")
    assert "10.0.3.0:6379" in decided.message


def test_a_member_that_has_forgotten_us_is_met_again_with_its_slots() -> None:
    scene = Scene()
    for name, node in scene.nodes.items():
        if name != "2-0":
            scene.views["2-0", node.id] = None
    assert scene.plan().step == Meet("2-0", "0-0")


def test_a_leftover_of_an_unfinished_shrinking_is_stopped_before_a_new_shard_comes() -> None:
    scene = Scene()
    scene.add(6, 0)
    assert scene.plan(4).step == StopShard(6)
    scene.member("6-0", leaving=True)
    assert scene.plan(4).step == StartShard(3, 2)


def test_deleting_stops_the_highest_shard_first() -> None:
    scene = Scene()
    for shard in (2, 1, 0):
        decided = plan_deletion(scene.seen())
        assert (decided.phase, decided.step) == (Phase.DRAINING, StopShard(shard))
        for place in range(2):
            scene.member(f"{shard}-{place}", leaving=True)
    assert plan_deletion(scene.seen()).step is None
    assert plan_deletion(Observed()).reason == "Drained"


def test_a_steady_cluster_forgets_what_is_gone() -> None:
    scene = Scene(4)
    scene.node("0-0", slots=scene.nodes["0-0"].slots | scene.nodes["3-0"].slots)
    scene.remove("3-1", "fail")
    scene.nodes["3-0"] = replace(scene.nodes["3-0"], slots=frozenset())
    scene.remove("3-0", "fail")
    scene.nodes |= {f"{k}-0": replace(scene.nodes[f"{k}-0"], slots=frozenset(s for s in range(SLOTS) if s % 3 == k))
                    for k in range(3)}  # fmt: skip
    for name in ("3-0", "3-1"):
        step = scene.plan().step
        assert isinstance(step, Forget)
        del scene.dead[step.id]
        assert step.id == id_of(name)
    assert scene.plan().phase is Phase.STEADY
