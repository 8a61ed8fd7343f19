"""Turns after somebody else: an older definition, another operator, a change that nobody refused."""

from __future__ import annotations

import pytest
from tests.unit.operator.world import AT, NS, Steered, World

from mmcache.operator import cluster as room
from mmcache.operator.api import CONFIG_MAPS
from mmcache.operator.cluster import STEADY_SECONDS
from mmcache.scale.controller import never


@pytest.fixture(autouse=True)
def steered(monkeypatch: pytest.MonkeyPatch) -> list[Steered]:
    Steered.made = []
    monkeypatch.setattr(room, "Controller", Steered)
    return Steered.made


@pytest.mark.parametrize("again", [False, True], ids=["running", "restarted"])
def test_what_cannot_change_does_not_where_nobody_refused_it(again: bool, steered: list[Steered]) -> None:
    """Neither a webhook nor CEL heard of it: half of the nodes would not talk to the others."""
    world = World({"authSecretRef": {"name": "secret"}})
    world.secret(password="hush")
    world.cluster.turn(never)
    steered[0].platform.start_shard(0, 2)
    if again:
        world.again()
    found, sent = world.server.objects[AT], len(world.server.sent)
    found["spec"], found["metadata"]["generation"] = {"tls": {"secretName": "tls"}}, 4
    for _ in range(2):
        world.cluster.turn(never)
    assert (world.status["phase"], world.status["reason"]) == ("Blocked", "InvalidSpec")
    assert "authSecretRef cannot be" in world.status["message"]
    assert "tls cannot be" in world.status["message"]
    assert [list(body) for body in world.server.sent[sent:]] == [["status"]]
    assert len(steered[0].specs) == 1
    found = world.server.objects[AT]
    found["spec"], found["metadata"]["generation"] = {"authSecretRef": {"name": "secret"}}, 5
    world.cluster.turn(never)
    assert (world.status["phase"], world.status["observedGeneration"]) == ("Steady", 5)


def test_what_another_operator_decided_meanwhile_is_not_undone(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    world.cluster.forget()  # the lease was lost
    world.server.objects[CONFIG_MAPS.path(NS, "shared-load")]["data"]["load.json"] = '{"turns": 99}'
    world.cluster.turn(never)
    assert steered[1].was == {"turns": 99}


def test_a_definition_that_is_older_than_the_operator_stops_nothing(
    steered: list[Steered], caplog: pytest.LogCaptureFixture
) -> None:
    """It does not know a phase, and refuses a status that has it."""
    world = World()
    world.server.troubled, world.server.trouble = "/multimodalcaches/shared/status", (422, "status.phase: Unsupported")
    world.again()
    for _ in range(2):
        assert world.cluster.turn(never) == STEADY_SECONDS
    assert len(steered[0].specs) == 2
    assert "mmcache operator crd --apply" in caplog.text
