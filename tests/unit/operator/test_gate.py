"""Which pods count for Kubernetes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.wishes import wish

from mmcache.operator import gate
from mmcache.operator.api import PODS
from mmcache.operator.platform import KubernetesPlatform
from mmcache.scale.observed import Member, NodeSeen, Observed, Other

NS, NOW = "inference", "2026-01-01T00:00:00Z"
SLOTS = frozenset({1, 2})


def seen(known: bool = True, /, **nodes: NodeSeen) -> Observed:
    """Members `a` = 0-0, `b` = 0-1. known: they have heard whose replica `b` is."""
    names = {"a": "0-0", "b": "0-1"}
    lines = {node.id: Other(node.id, "10.0.0.1", 6379, frozenset(), node.primary if known else "", True, 1, node.slots)
             for node in nodes.values()}  # fmt: skip
    nodes = {name: replace(node, others=lines) for name, node in nodes.items()}
    members = (Member(0, 0, "10.0.0.1", 6379, ready=True), Member(0, 1, "10.0.0.2", 6379, ready=True))
    return Observed(members, {names[name]: node for name, node in nodes.items()})


@pytest.mark.parametrize(
    ("nodes", "holds"),
    [
        ({"a": NodeSeen("1"), "b": NodeSeen("2")}, (True, True)),
        ({"a": NodeSeen("1")}, (True, False)),
        ({"a": NodeSeen("1", slots=SLOTS), "b": NodeSeen("2")}, (True, False)),
        ({"a": NodeSeen("1", slots=SLOTS), "b": NodeSeen("2", "1", in_sync=False)}, (True, False)),
        ({"a": NodeSeen("1", slots=SLOTS), "b": NodeSeen("2", "1")}, (True, True)),
        ({"a": NodeSeen("1", slots=SLOTS)}, (True, False)),
    ],
    ids=["begins", "silent", "stranger", "filling", "whole", "died"],
)
def test_a_pod_counts_when_it_holds_its_shards_blocks(
    nodes: dict[str, NodeSeen], holds: tuple[bool, bool]
) -> None:  # fmt: skip
    assert gate.holding(seen(**nodes)) == dict(zip(("0-0", "0-1"), holds, strict=True))


def test_a_replica_that_its_primary_does_not_know_yet_does_not_count() -> None:
    """Else its primary might be drained, and could not hand over."""
    look = seen(False, a=NodeSeen("1", slots=SLOTS), b=NodeSeen("2", "1"))
    assert gate.holding(look) == {"0-0": True, "0-1": False}


def test_who_leaves_or_has_no_address_is_not_told_of() -> None:
    members = (Member(0, 0, "10.0.0.1", 6379, leaving=True), Member(0, 1))
    assert gate.holding(Observed(members, {})) == {}


def test_only_what_changes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.start_shard(0, 2)
    server.make_pods()
    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        type(platform._api), "condition", lambda _, kind, namespace, name, change: told.append((name, change))
    )
    platform.members()
    look = seen(a=NodeSeen("1", slots=SLOTS), b=NodeSeen("2", "1"))
    platform.mark(look, NOW)
    assert [name for name, _ in told] == ["shared-shard-0-0", "shared-shard-0-1"]
    for name, change in told:
        pod = server.objects[PODS.path(NS, name)]
        assert change["metadata"]["uid"] == pod["metadata"]["uid"]
        pod["status"]["conditions"] += change["status"]["conditions"]
    told.clear()
    platform.members()
    platform.mark(look, NOW)
    assert told == []
    platform.mark(seen(a=NodeSeen("1", slots=SLOTS)), NOW)
    assert [(name, change["status"]["conditions"][0]["status"]) for name, change in told] == [
        ("shared-shard-0-1", "False")
    ]


@pytest.mark.parametrize(
    ("ready", "containers", "runs"),
    [
        ({"status": "True"}, "True", True),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, "True", True),
        ({"status": "False", "reason": "ContainersNotReady"}, "False", False),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, "False", False),
        ({"status": "False"}, "True", False),
        ({}, "True", False),
    ],
    ids=["ready", "gate", "containers", "both", "machine", "new"],
)
def test_a_pod_whose_machine_is_lost_does_not_run(ready: dict[str, str], containers: str, runs: bool) -> None:
    conditions = [{"type": "ContainersReady", "status": containers}, *([{"type": "Ready", **ready}] if ready else [])]
    assert gate.runs({"status": {"conditions": conditions}}) is runs


def test_kubernetes_waits_for_it() -> None:
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.start_shard(0, 1)
    server.make_pods()
    assert server.objects[PODS.path(NS, "shared-shard-0-0")]["spec"]["readinessGates"] == [
        {"conditionType": gate.CONDITION}
    ]
