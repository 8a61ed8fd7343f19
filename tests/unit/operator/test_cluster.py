"""Turns of one resource, against an API server in memory and a controller that does what the test says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.fake_server import refusal
from tests.unit.operator.test_status import made
from tests.unit.operator.world import AT, NS, Steered, World

from mmcache.model.errors import KubernetesError
from mmcache.operator import cluster as room
from mmcache.operator.api import CONFIG_MAPS
from mmcache.operator.cluster import BUSY_SECONDS, MOVING_SECONDS, STEADY_SECONDS
from mmcache.scale.controller import never
from mmcache.scale.status import Happened, Phase, Progress, Status


@pytest.fixture(autouse=True)
def steered(monkeypatch: pytest.MonkeyPatch) -> list[Steered]:
    Steered.made = []
    monkeypatch.setattr(room, "Controller", Steered)
    return Steered.made


@pytest.mark.parametrize(
    ("status", "pause"),
    [
        (made(), STEADY_SECONDS),
        (made(phase=Phase.BLOCKED), STEADY_SECONDS),
        (made(phase=Phase.UNKNOWN), STEADY_SECONDS),
        (made(phase=Phase.REPAIRING), BUSY_SECONDS),
        (made(phase=Phase.SCALING_OUT, reason="Moving", progress=Progress(1, 9)), MOVING_SECONDS),
        (made(phase=Phase.SCALING_OUT, reason="Starting", progress=Progress(1, 9)), BUSY_SECONDS),
    ],
    ids=["steady", "blocked", "unknown", "repairing", "moving", "waiting"],
)
def test_the_next_turn_comes_when_there_is_something_to_do(
    status: Status, pause: float, steered: list[Steered]
) -> None:
    world = World()
    world.cluster.turn(never)
    steered[0].next = status
    assert world.cluster.turn(never) == pause


def test_a_change_is_followed_without_being_told_of(steered: list[Steered]) -> None:
    world = World({"maxShards": 5})
    world.cluster.turn(never)
    world.server.objects[AT]["spec"] = {"maxShards": 9}
    world.server.objects[AT]["metadata"]["generation"] = 4
    world.cluster.turn(never)
    (controller,) = steered
    assert [one.max_shards for one in controller.specs] == [5, 9]
    assert controller.platform.wish.generation == world.status["observedGeneration"] == 4


def test_figures_are_written_now_and_then_only(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    writes = []
    for turn in range(12):
        steered[0].next = made(keys=turn)
        before = len([call for call in world.server.calls if call[0] == "PATCH" and call[1].endswith("/status")])
        world.now += 5
        world.cluster.turn(never)
        writes.append(len([call for call in world.server.calls if call[1].endswith("/status")]) - before)
    assert writes == [0, 1] * 6
    steered[0].next = made(phase=Phase.REPAIRING)
    world.cluster.turn(never)
    assert world.status["phase"] == "Repairing"


def test_a_wrong_spec_is_told_once_and_nothing_is_done(steered: list[Steered]) -> None:
    world = World({"minShards": 9, "maxShards": 3})
    for _ in range(3):
        assert world.cluster.turn(never) == STEADY_SECONDS
    assert (world.status["phase"], world.status["reason"]) == ("Blocked", "InvalidSpec")
    assert "maxShards" in world.status["message"]
    assert len([call for call in world.server.calls if call[0] == "PATCH"]) == 1
    assert steered == []
    world.server.objects[AT]["spec"] = {}
    world.cluster.turn(never)
    assert world.status["phase"] == "Steady"


def test_a_secret_that_is_missing_is_waited_for(steered: list[Steered]) -> None:
    world = World({"authSecretRef": {"name": "secret"}})
    world.cluster.turn(never)
    assert (world.status["phase"], world.status["reason"]) == ("Blocked", "SecretMissing")
    assert "there is no Secret secret in inference" in world.status["message"]
    world.secret(other="x")
    world.cluster.turn(never)
    assert "has no key password" in world.status["message"]
    world.secret(password="\n")
    world.cluster.turn(never)
    assert "is empty" in world.status["message"]
    world.secret(password="hush hush\n")
    world.cluster.turn(never)
    assert world.status["phase"] == "Steady"
    assert steered[0].access.password == "hush hush"


def test_a_server_in_trouble_says_nothing_of_a_secret(steered: list[Steered]) -> None:
    """It is neither told to be missing, nor is a cluster given up undrained for it."""
    for metadata in ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        world = World({"authSecretRef": {"name": "secret"}, "drainSeconds": 86_400}, **metadata)
        world.now, world.server.troubled = 1_767_225_600.0, "/secrets/"
        with pytest.raises(KubernetesError, match="etcd"):
            (world.cluster.drain if metadata else world.cluster.turn)(never)
        assert world.status == {}


def test_a_new_password_is_used_and_what_was_learned_stays(steered: list[Steered]) -> None:
    world = World({"authSecretRef": {"name": "secret", "key": "valkey"}})
    world.secret(valkey="one")
    world.cluster.turn(never)
    world.cluster.turn(never)
    world.secret(valkey="two", previous="one")
    world.cluster.turn(never)
    assert [one.access.password for one in steered] == ["one", "two"]
    assert steered[1].was == {"turns": 2}


def test_no_password_comes_out_of_it(steered: list[Steered], caplog: pytest.LogCaptureFixture) -> None:
    world = World({"authSecretRef": {"name": "secret"}})
    world.secret(password="hush-hush")
    steps = [Happened("Meet", "one meets another"), Happened("StepFailed", "no", warning=True)]
    world.cluster.turn(never)
    steered[0].next = made(happened=tuple(steps))
    world.cluster.turn(never)
    shown = json.dumps([one for path, one in world.server.objects.items() if "/secrets/" not in path])
    assert "hush" not in shown + caplog.text + repr(steered[0].access) + repr(world.cluster._secrets)


def test_what_is_usual_survives_a_restart(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    kept = world.server.objects[CONFIG_MAPS.path(NS, "shared-load")]
    assert json.loads(kept["data"]["load.json"]) == {"turns": 1}
    world.now += 30
    world.cluster.turn(never)
    assert json.loads(world.server.objects[CONFIG_MAPS.path(NS, "shared-load")]["data"]["load.json"]) == {"turns": 1}
    world.cluster.close()
    world.again().turn(never)
    assert steered[1].was == {"turns": 2}


def test_a_decision_is_saved_at_once_and_a_clock_that_is_set_back_holds_nothing_up(steered: list[Steered]) -> None:
    world = World()

    def turns() -> object:
        world.now += 1
        world.cluster.turn(never)
        return json.loads(world.server.objects[CONFIG_MAPS.path(NS, "shared-load")]["data"]["load.json"])["turns"]

    assert [turns(), turns()] == [1, 1]
    steered[0].next = made(happened=(Happened("Decided", "from 3 to 5 shards"),))
    assert turns() == 3
    steered[0].next = made(qps=77.0)
    world.now -= 7200
    assert turns() == 4
    assert world.status["qps"] == 77.0


def test_a_damaged_memory_is_no_end(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    world.server.objects[CONFIG_MAPS.path(NS, "shared-load")]["data"]["load.json"] = "{"
    steered.clear()
    world.again().turn(never)
    assert steered[0].was is not None
    assert world.status["phase"] == "Steady"


def test_the_same_event_is_counted(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    steered[0].next = made(happened=(Happened("Blocked", "no room", warning=True),))
    for _ in range(3):
        world.now += 60
        world.again()
        world.cluster.turn(never)
        steered[-1].next = steered[0].next
        world.cluster.turn(never)
    (event,) = world.events()
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "Blocked", 3)
    assert event["firstTimestamp"] < event["lastTimestamp"]
    assert event["involvedObject"]["uid"] == "u-1"


def test_an_event_that_cannot_be_written_stops_nothing(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    steered[0].next = made(phase=Phase.REPAIRING, happened=(Happened("Meet", "a meets b"),))

    def refusing(request: Any) -> Any:
        return refusal(403, "being terminated") if "/events" in request.url.path else answer(request)

    answer, world.server.answer = world.server.answer, refusing  # type: ignore[method-assign]
    world.again().turn(never)
    steered[-1].next = steered[0].next
    world.cluster.turn(never)
    assert world.status["phase"] == "Repairing"


def test_a_server_that_is_away_ends_the_turn_only(steered: list[Steered]) -> None:
    world = World()
    world.server.broken.append(refusal(503, "etcd has no leader"))
    with pytest.raises(KubernetesError, match="etcd has no leader"):
        world.cluster.turn(never)
    assert world.cluster.turn(never) == STEADY_SECONDS


def test_a_deletion_drains_turn_by_turn(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    world.server.objects[AT]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    world.now = 1_800_000_000.0
    turns = len(steered[0].specs)
    assert world.cluster.turn(never) == STEADY_SECONDS
    assert len(steered[0].specs) == turns
    steered[0].next = made(phase=Phase.DRAINING, nodes=4)
    assert not world.cluster.drain(never)
    assert world.status["phase"] == "Draining"
    steered[0].next = made(phase=Phase.DRAINING, nodes=0)
    assert world.cluster.drain(never)


@pytest.mark.parametrize(
    "metadata", [{}, {"annotations": {"mmcache.dev/force-delete": "true"}}], ids=["late", "forced"]
)
def test_a_deletion_ends_in_any_case(metadata: dict[str, Any], steered: list[Steered]) -> None:
    world = World({"drainSeconds": 60}, deletionTimestamp="2027-01-15T08:00:00Z", **metadata)
    if not metadata:
        world.now += 30
        world.cluster.drain(never)
        steered[0].next = replace(made(), phase=Phase.UNKNOWN)
        assert not world.cluster.drain(never)
        world.now += 31
    assert world.cluster.drain(never)
    assert [one["reason"] for one in world.events()] == ([] if metadata else ["DrainTimedOut"])


@pytest.mark.parametrize("spec", [{"minShards": 1}, {"authSecretRef": {"name": "gone"}}], ids=["spec", "secret"])
def test_what_cannot_be_drained_is_let_go(spec: dict[str, Any], steered: list[Steered]) -> None:
    """As in a namespace that is being deleted, where the Secret may go first."""
    world = World(spec, deletionTimestamp="2027-01-15T08:00:00Z")
    assert world.cluster.drain(never)


def test_a_resource_that_is_gone_needs_nothing(steered: list[Steered]) -> None:
    world = World()
    del world.server.objects[AT]
    assert world.cluster.turn(never) == STEADY_SECONDS
    assert world.cluster.drain(never)
    assert steered == []


def test_what_kubernetes_refuses_is_told_and_stops_nothing_else(steered: list[Steered]) -> None:
    """Such as a toleration that is none: no schema of ours knows it."""
    world = World()
    world.cluster.turn(never)
    answer = world.server.answer

    def refusing(request: Any) -> Any:
        if request.method == "PATCH" and "/services/" in request.url.path:
            return refusal(422, "spec.ports: invalid")
        return answer(request)

    world.server.answer = refusing  # type: ignore[method-assign]
    world.again()
    for _ in range(3):
        world.now += 61
        world.cluster.turn(never)
    assert (world.status["phase"], world.status["reason"]) == ("Blocked", "Refused")
    assert "spec.ports: invalid" in world.status["message"]
    assert len(steered[-1].specs) == 3
    assert [(one["reason"], one["count"]) for one in world.events()] == [("Refused", 1)]
    world.server.answer = answer  # type: ignore[method-assign]
    world.cluster._api = world.server.api()
    world.cluster._platform._api = world.server.api()  # type: ignore[union-attr]
    world.now += 61
    world.cluster.turn(never)
    assert world.status["phase"] == "Steady"


def test_a_change_is_tried_at_once(steered: list[Steered]) -> None:
    world = World()
    world.cluster.turn(never)
    before = len(world.server.sent)
    world.server.objects[AT]["metadata"]["generation"] = 4
    world.server.objects[AT]["spec"] = {"config": {"io-threads": "2"}}
    world.cluster.turn(never)
    assert "io-threads 2" in str([one.get("data") for one in world.server.sent[before:]])
