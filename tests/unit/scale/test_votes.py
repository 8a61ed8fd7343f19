"""A replica asks for its primary's place when it will get it: a try that fails stops writes, and bars the next one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenes import Scene, id_of

from mmcache.scale.observed import SLOTS
from mmcache.scale.picture import Picture
from mmcache.scale.steps import Failover, Replace
from mmcache.scale.votes import is_known, is_let

HEIR, PRIMARY = id_of("0-1"), id_of("0-0")


def upgraded(replicas: int = 1) -> Scene:
    """All run what is wanted but the primary of shard 0."""
    scene = Scene(replicas=replicas)
    scene.member("0-0", current=False)
    return scene


def test_a_replica_that_all_know_takes_over() -> None:
    assert upgraded().plan().step == Failover("0-1")


@pytest.mark.parametrize(
    ("viewer", "of", "thinks"),
    [
        ("0-0", HEIR, None),
        ("0-0", HEIR, {"primary": ""}),
        ("0-0", HEIR, {"primary": id_of("1-0")}),
        ("0-0", HEIR, {"linked": False}),
        ("0-0", HEIR, {"flags": frozenset({"handshake"})}),
        ("0-1", PRIMARY, {"linked": False}),
        ("0-1", PRIMARY, {"slots": frozenset(range(SLOTS // 2))}),
        ("0-1", PRIMARY, {"epoch": 0}),
    ],
    ids=["unknown", "a-primary", "anothers", "no-link", "greeting", "no-link-back", "other-slots", "older"],
)
def test_the_primary_and_its_heir_are_of_one_mind(viewer: str, of: str, thinks: dict[str, Any] | None) -> None:
    """One primary is no majority: two others who would vote do not help where it does not hear, or is not known."""
    scene = upgraded()
    scene.views[viewer, of] = thinks
    decided = scene.plan()
    assert (decided.step, decided.reason) == (None, "Synchronizing")
    assert "no replica of 0-0 can take over yet" in decided.message


@pytest.mark.parametrize(
    "thinks",
    [None, {"primary": ""}, {"linked": False}, {"flags": frozenset({"fail?"})}],
    ids=["unknown", "a-primary", "no-link", "doubted"],
)
def test_a_majority_has_to_know_it(thinks: dict[str, Any] | None) -> None:
    """Its primary votes, too: of three, one other is enough."""
    scene = upgraded()
    scene.views["1-0", HEIR] = thinks
    assert scene.plan().step == Failover("0-1")
    scene.views["2-0", HEIR] = thinks
    assert scene.plan().step is None
    del scene.views["1-0", HEIR]
    assert scene.plan().step == Failover("0-1")


def test_who_voted_in_a_newer_epoch_votes_in_no_older_one() -> None:
    scene = upgraded()
    for name in ("1-0", "2-0"):
        scene.node(name, heard_epoch=7)
    scene.node("0-1", heard_epoch=6)
    assert scene.plan().step is None
    scene.node("0-1", heard_epoch=7)
    assert scene.plan().step == Failover("0-1")


def test_who_holds_its_slots_for_anothers_does_not_vote() -> None:
    scene = upgraded()
    few = frozenset(range(10))
    for name in ("1-0", "2-0"):
        scene.views[name, PRIMARY] = {"slots": scene.nodes["0-0"].slots - few}
    assert scene.plan().step is None


def test_one_is_known_whatever_slots_and_epochs_are_on_their_way() -> None:
    scene = upgraded()
    scene.node("1-0", heard_epoch=7)
    scene.node("2-0", heard_epoch=7)
    scene.views["0-1", PRIMARY] = {"epoch": 0}
    picture = Picture(scene.seen())
    assert (is_known(picture, "0-1"), is_let(picture, "0-1")) == (True, False)
    scene.views["0-0", HEIR] = {"primary": ""}
    assert not is_known(Picture(scene.seen()), "0-1")
    scene.silence("0-0")
    assert not is_known(Picture(scene.seen()), "0-1")


def test_another_replica_goes_first_that_is_let() -> None:
    scene = upgraded(replicas=2)
    scene.views["0-0", HEIR] = {"primary": ""}
    assert scene.plan(replicas=2).step == Failover("0-2")


def test_nobody_is_ended_before_the_others_know_the_heir() -> None:
    """A primary that leaves, one whose place goes, and one that is old: all wait, and none is overtaken."""
    leaving = Scene()
    leaving.member("0-0", leaving=True)
    beyond = Scene()
    slots = beyond.nodes["0-0"].slots
    beyond.node("0-0", primary=HEIR, slots=frozenset(), epoch=0)
    beyond.node("0-1", primary="", slots=slots, epoch=9)
    for scene, heir, wanted in ((leaving, "0-1", {}), (beyond, "0-0", {"replicas": 0})):
        assert scene.plan(**wanted).step == Failover(heir)
        for name in ("1-0", "2-0"):
            scene.views[name, id_of(heir)] = {"primary": ""}
        assert not isinstance(scene.plan(**wanted).step, Failover | Replace)
